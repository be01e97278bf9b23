//! How fast a bucket is written and read: the same options for every verb.

use ckptfs::store::Rates;

use super::words;

/// Slower than this, a table of 64 MiB takes a quarter of an hour.
const SLOWEST: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Most bytes a second that are sent to a bucket, as 50MiB; by this process, not by the host
    #[arg(long, global = true, env = "CKPTFS_UPLOAD_RATE", value_name = "RATE", value_parser = rate)]
    upload_rate: Option<u64>,
    /// Most bytes a second that are fetched from a bucket, as 50MiB; readers of a mount come before what is fetched behind them
    #[arg(long, global = true, env = "CKPTFS_FETCH_RATE", value_name = "RATE", value_parser = rate)]
    fetch_rate: Option<u64>,
}

/// `50MiB` or `50MiB/s`.
fn rate(text: &str) -> std::result::Result<u64, String> {
    let bytes = words::bytes(text.strip_suffix("/s").unwrap_or(text))?;
    if bytes < SLOWEST {
        return Err(format!("{text:?} is too slow: at least 64KiB a second; leave it out for no limit"));
    }
    Ok(bytes)
}

impl Args {
    pub(crate) fn rates(self) -> Rates {
        Rates { upload: self.upload_rate, fetch: self.fetch_rate }
    }

    /// The options again, for a process that is started with them.
    pub(crate) fn again(self) -> Vec<String> {
        [("--upload-rate", self.upload_rate), ("--fetch-rate", self.fetch_rate)]
            .into_iter()
            .filter_map(|(flag, rate)| Some(format!("{flag}={}", rate?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_people_write_them() {
        assert_eq!(rate("50MiB"), Ok(50 << 20));
        assert_eq!(rate("1.5GB/s"), Ok(1_500_000_000));
        assert!(rate("10").unwrap_err().contains("at least 64KiB"));
        assert!(rate("fast").unwrap_err().contains("50MiB"));
        let args = Args { upload_rate: Some(70_000), fetch_rate: None };
        assert_eq!(args.again(), ["--upload-rate=70000"]);
        assert_eq!(args.rates(), Rates { upload: Some(70_000), fetch: None });
    }
}
