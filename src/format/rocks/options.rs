//! Which RocksDB wrote a database: its OPTIONS file says so. Nothing else of that file is looked at, and none is ever loaded.

/// Longest version that is believed to be one: `10.4.2` and what forks add.
const VERSION_LEN: usize = 32;

/// The line `rocksdb_version=` of the section `[Version]`, if it is there and says a version.
#[must_use]
pub fn rocksdb_version(options: &[u8]) -> Option<&str> {
    let mut lines = options.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    lines.find(|line| *line == b"[Version]")?;
    let own = lines.take_while(|line| !line.starts_with(b"["));
    let text = own.filter_map(|line| line.strip_prefix(b"rocksdb_version=")).next()?;
    let text = std::str::from_utf8(text).ok()?;
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
    (!text.is_empty() && text.len() <= VERSION_LEN && text.chars().all(known)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_is_one() {
        let real = b"# This is a RocksDB option file.\n#\n\n[Version]\n  rocksdb_version=9.10.0\n  options_file_version=1.1\n\n[DBOptions]\n";
        assert_eq!(rocksdb_version(real), Some("9.10.0"));
        assert_eq!(rocksdb_version(b"[Version]\r\nrocksdb_version=8.0.0-frocksdb\r\n"), Some("8.0.0-frocksdb"));
        for bad in [
            &b""[..],
            b"rocksdb_version=1",
            b"[DBOptions]\nrocksdb_version=1",
            b"[Version]\n[DBOptions]\nrocksdb_version=1",
            b"[Version]\nrocksdb_version=",
            b"[Version]\nrocksdb_version=\x1b[2J",
            b"[Version]\nrocksdb_version=1 2",
            b"[Version]\nrocksdb_version=123456789012345678901234567890123",
            b"[Version]\nrocksdb_version=\xff\n",
        ] {
            assert_eq!(rocksdb_version(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
