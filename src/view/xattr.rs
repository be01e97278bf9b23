//! Extended attributes of the view: what a file is, whether it is here, and how old a listing is.

use super::Core;
use super::error::ViewError;
use super::node::Node;

const PREFIX: &str = "user.ckptfs.";

fn civil(ms: u64) -> String {
    // Days to year, month, day, after Howard Hinnant's `civil_from_days`, for days since 1970 only.
    let seconds = ms / 1000;
    let z = seconds / 86_400 + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let of_day = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60,
        ms % 1000
    )
}

impl Core {
    /// The value of an attribute.
    pub(super) fn xattr(&self, ino: u64, name: &str) -> Result<Vec<u8>, ViewError> {
        let node = self.inodes.get(ino).ok_or(ViewError::Stale)?;
        if !name.starts_with("user.") {
            return Err(ViewError::NotSupported);
        }
        let Some(name) = name.strip_prefix(PREFIX) else { return Err(ViewError::NoData) };
        let value = match &node {
            Node::Root => match name {
                "listed" => self.jobs_listed_ms().map(civil),
                // Tells who follows a link into the mount whether its digests may be believed.
                "store" => self.source.store_id().map(|id| id.to_string()),
                // Tells `umount` which process to wait for.
                "daemon" => Some(std::process::id().to_string()),
                _ => None,
            },
            Node::Job(job) if name == "listed" => job.listed_ms().map(civil),
            Node::Blob(blob) => {
                let names = blob.names().len();
                self.file_xattr(name, &blob.digest, blob.size, names)
            }
            Node::File(file) => file.entry().and_then(|entry| self.file_xattr(name, &entry.digest, entry.size, 1)),
            _ => None,
        };
        value.map(String::into_bytes).ok_or(ViewError::NoData)
    }

    fn file_xattr(&self, name: &str, digest: &crate::types::Digest, size: u64, names: usize) -> Option<String> {
        match name {
            "digest" => Some(digest.to_hex()),
            "size" => Some(size.to_string()),
            "refs" => Some(names.to_string()),
            "residency" => {
                let local = matches!(self.source.open_local(digest, size), Ok(Some(_)));
                Some(if local { "local" } else { "lazy" }.to_owned())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn dates() {
        assert_eq!(civil(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(civil(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(civil(1_795_971_599_000), "2026-11-29T16:59:59.000Z");
        assert_eq!(civil(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }
}
