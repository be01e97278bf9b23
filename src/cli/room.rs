//! How much of the disk the cache may take: the same options for every verb that fills it.

use ckptfs::cache::{Cache, CacheLimits};
use ckptfs::error::Result;

use super::words;

/// A limit that a person gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// So many bytes.
    Bytes(u64),
    /// The default again.
    Default,
}

#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Most that the cache may take of its disk, as 20GiB, kept from now on by all that use it; `default` lifts it: no limit of its own
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) cache_size: Option<Size>,
    /// What must stay free on the cache's disk, as 5GiB; `default`: a twentieth of it, at most 10 GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) cache_free: Option<Size>,
}

/// `20GiB`, `500MB`, `1048576`, or `default`.
fn size(text: &str) -> std::result::Result<Size, String> {
    if text == "default" {
        return Ok(Size::Default);
    }
    words::bytes(text).map(Size::Bytes).map_err(|why| format!("{why}, or default"))
}

impl Args {
    /// Notes in the cache what was given.
    pub(crate) fn apply(&self, cache: &Cache) -> Result<()> {
        let before = cache.limits();
        let chosen = |given: Option<Size>, before| match given {
            Some(Size::Bytes(n)) => Some(n),
            Some(Size::Default) => None,
            None => before,
        };
        let limits =
            CacheLimits { size: chosen(self.cache_size, before.size), free: chosen(self.cache_free, before.free) };
        if limits != before {
            cache.set_limits(limits)?;
        }
        Ok(())
    }

    /// The options again, for a process that is started with them.
    pub(crate) fn again(&self) -> Vec<String> {
        let word = |size| match size {
            Size::Bytes(n) => n.to_string(),
            Size::Default => "default".to_owned(),
        };
        [("--cache-size", self.cache_size), ("--cache-free", self.cache_free)]
            .into_iter()
            .filter_map(|(flag, size)| Some(format!("{flag}={}", word(size?))))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("20GiB", 20 << 30),
            ("1048576", 1 << 20),
            ("500MB", 500_000_000),
            ("3 TiB", 3 << 40),
            ("0", 0),
            ("7G", 7 << 30),
            ("1.5GiB", 3 << 29),
            ("0.25 MB", 250_000),
        ] {
            assert_eq!(size(text), Ok(Size::Bytes(bytes)), "{text}");
        }
        assert_eq!(size("default"), Ok(Size::Default));
        for bad in ["", "GiB", "-1", "1.GiB", ".5GiB", "1.2.3", "1.0001GiB", "20gib", "99999999TiB", "1 2"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        let args = Args { cache_size: Some(Size::Bytes(5)), cache_free: Some(Size::Default) };
        assert_eq!(args.again(), ["--cache-size=5", "--cache-free=default"]);
    }
}
