//! Where a file has data, and where only holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The runs of a file's first `size` bytes that are no holes, at most `most` of them. A file system that knows no holes says that all is data.
///
/// # Errors
/// When the disk fails.
pub fn data_ranges(file: &File, size: u64, most: usize) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < size && found.len() < most {
        let Some(start) = seek(file, at, libc::SEEK_DATA)? else { break };
        let end = seek(file, start, libc::SEEK_HOLE)?.unwrap_or(size);
        if start >= size || end <= start {
            break;
        }
        found.push(start..end.min(size));
        at = end;
    }
    Ok(found)
}

/// Nothing: there is none from there on.
fn seek(file: &File, from: u64, whence: libc::c_int) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    // SAFETY: plain numbers on an open descriptor.
    let found = unsafe { libc::lseek(file.as_raw_fd(), from, whence) };
    match u64::try_from(found) {
        Ok(found) => Ok(Some(found)),
        Err(_) => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_lies_between_holes() {
        let file = tempfile::tempfile().unwrap();
        let size = 64 << 20;
        file.set_len(size).unwrap();
        assert_eq!(data_ranges(&file, size, 10).unwrap(), []);
        for at in [1 << 20, 5 << 20, size - (1 << 16)] {
            file.write_all_at(&[1; 1 << 16], at).unwrap();
        }
        let found = data_ranges(&file, size, 10).unwrap();
        for at in [1 << 20, 5 << 20, size - (1 << 16)] {
            assert!(found.iter().any(|r| r.start <= at && r.end >= at + (1 << 16)), "{found:?}");
        }
        assert!(!found.iter().any(|r| r.contains(&(32 << 20))), "{found:?}");
        assert_eq!(data_ranges(&file, size, 2).unwrap().len(), 2);
        assert_eq!(data_ranges(&file, 0, 2).unwrap(), []);
    }
}
