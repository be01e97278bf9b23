//! Names of files in a RocksDB directory, and CURRENT, which holds one.
//!
//! Numbers count only as RocksDB writes them (six digits, more when needed): `5.sst` is not the file that RocksDB
//! opens as table 5, so it must not pass for it.

use super::error::CurrentError;

/// What a name in a RocksDB directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// `CURRENT`: names the live MANIFEST.
    Current,
    /// `MANIFEST-000005`.
    Manifest(u64),
    /// `000123.sst`, or LevelDB's `000123.ldb`. Immutable.
    Sst(u64),
    /// `000123.blob`. Immutable once the RocksDB MANIFEST names it.
    BlobFile(u64),
    /// `000123.log`: a write-ahead log.
    Wal(u64),
    /// `OPTIONS-000007`.
    Options(u64),
    /// `IDENTITY`: the database's id.
    Identity,
    /// `LOCK`.
    Lock,
    /// `LOG`, `LOG.old.*`: for people.
    InfoLog,
    /// `*.dbtmp`: half written, renamed when whole.
    Temporary,
    /// `*.trash`: waits for the delete scheduler.
    Trash,
    /// Nothing that RocksDB needs to open a database.
    Other,
}

impl FileKind {
    /// Whether RocksDB never changes it once it is named by a MANIFEST.
    #[must_use]
    pub fn is_immutable(self) -> bool {
        matches!(self, Self::Sst(_) | Self::BlobFile(_))
    }
}

/// The name of table file `number`.
#[must_use]
pub fn sst_name(number: u64) -> String {
    format!("{number:06}.sst")
}

/// The name of blob file `number`.
#[must_use]
pub fn blob_name(number: u64) -> String {
    format!("{number:06}.blob")
}

/// The name of write-ahead log `number`.
#[must_use]
pub fn wal_name(number: u64) -> String {
    format!("{number:06}.log")
}

/// The name of MANIFEST `number`.
#[must_use]
pub fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// Classifies a file name (no directory part).
#[must_use]
pub fn file_kind(name: &str) -> FileKind {
    match name {
        "CURRENT" => return FileKind::Current,
        "IDENTITY" => return FileKind::Identity,
        "LOCK" => return FileKind::Lock,
        "LOG" | "LOG.old" => return FileKind::InfoLog,
        _ => {}
    }
    if name.starts_with("LOG.old.") {
        return FileKind::InfoLog;
    }
    // Trash keeps the name of what was deleted in front: `000012.sst.trash`, `OPTIONS-000007.dbtmp.trash`.
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    match extension {
        "trash" => return FileKind::Trash,
        "dbtmp" => return FileKind::Temporary,
        _ => {}
    }
    let kind = if let Some(digits) = name.strip_prefix("MANIFEST-") {
        number(digits).map(FileKind::Manifest)
    } else if let Some(digits) = name.strip_prefix("OPTIONS-") {
        number(digits).map(FileKind::Options)
    } else {
        number(stem).and_then(|number| match extension {
            "sst" | "ldb" => Some(FileKind::Sst(number)),
            "blob" => Some(FileKind::BlobFile(number)),
            "log" => Some(FileKind::Wal(number)),
            _ => None,
        })
    };
    kind.unwrap_or(FileKind::Other)
}

/// The number of the MANIFEST that the content of CURRENT names.
///
/// # Errors
///
/// Anything but `MANIFEST-`, a number as RocksDB writes it, and one newline.
pub fn parse_current(content: &[u8]) -> Result<u64, CurrentError> {
    let text = std::str::from_utf8(content).map_err(|_| CurrentError)?;
    let digits = text.strip_suffix('\n').and_then(|name| name.strip_prefix("MANIFEST-"));
    digits.and_then(number).ok_or(CurrentError)
}

/// A number in RocksDB's one spelling of it.
fn number(digits: &str) -> Option<u64> {
    // u64::from_str takes a plus sign too.
    if digits.len() < 6 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if digits.len() > 6 && digits.starts_with('0') {
        return None;
    }
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_classified() {
        for (name, kind) in [
            ("CURRENT", FileKind::Current),
            ("MANIFEST-000005", FileKind::Manifest(5)),
            ("MANIFEST-1234567", FileKind::Manifest(1_234_567)),
            ("000123.sst", FileKind::Sst(123)),
            ("000123.ldb", FileKind::Sst(123)),
            ("000124.blob", FileKind::BlobFile(124)),
            ("000125.log", FileKind::Wal(125)),
            ("OPTIONS-000007", FileKind::Options(7)),
            ("IDENTITY", FileKind::Identity),
            ("LOCK", FileKind::Lock),
            ("LOG", FileKind::InfoLog),
            ("LOG.old.1700000000000000", FileKind::InfoLog),
            ("000008.dbtmp", FileKind::Temporary),
            ("OPTIONS-000007.dbtmp", FileKind::Temporary),
            ("000123.sst.trash", FileKind::Trash),
            (".trash", FileKind::Trash),
            ("", FileKind::Other),
            ("CURRENT.bak", FileKind::Other),
            ("LOGS", FileKind::Other),
            ("MANIFEST-5", FileKind::Other),
            ("MANIFEST-0000005", FileKind::Other),
            ("MANIFEST-+00005", FileKind::Other),
            ("MANIFEST-99999999999999999999", FileKind::Other),
            ("000123.SST", FileKind::Other),
            ("123.sst", FileKind::Other),
            ("000123.sst.bak", FileKind::Other),
            ("archive", FileKind::Other),
            ("rocksdict-config.json", FileKind::Other),
        ] {
            assert_eq!(file_kind(name), kind, "{name}");
            let tables = matches!(kind, FileKind::Sst(_) | FileKind::BlobFile(_));
            assert_eq!(kind.is_immutable(), tables, "{name}");
        }
    }

    #[test]
    fn names_and_kinds_are_each_others_inverse() {
        for number in [0, 1, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(file_kind(&sst_name(number)), FileKind::Sst(number));
            assert_eq!(file_kind(&blob_name(number)), FileKind::BlobFile(number));
            assert_eq!(file_kind(&wal_name(number)), FileKind::Wal(number));
            assert_eq!(file_kind(&manifest_name(number)), FileKind::Manifest(number));
            assert_eq!(parse_current(format!("{}\n", manifest_name(number)).as_bytes()), Ok(number));
        }
    }

    #[test]
    fn current_is_read_strictly() {
        assert_eq!(parse_current(b"MANIFEST-000005\n"), Ok(5));
        for bad in [
            &b""[..],
            b"\n",
            b"MANIFEST-000005",
            b"MANIFEST-000005\n\n",
            b"MANIFEST-000005\r\n",
            b"MANIFEST-\n",
            b"MANIFEST-5\n",
            b"/MANIFEST-000005\n",
            b"../MANIFEST-000005\n",
            b"OPTIONS-000005\n",
            b"MANIFEST-99999999999999999999\n",
            b"MANIFEST-00000\xff\n",
        ] {
            assert_eq!(parse_current(bad), Err(CurrentError));
        }
    }
}
