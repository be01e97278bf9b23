//! Files that are on no disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

use super::sys;

/// A new empty file in memory, open for reading and writing. It is gone with its last descriptor.
///
/// # Errors
/// When the kernel refuses.
pub fn file() -> io::Result<File> {
    // SAFETY: the name is a string with its end.
    let fd = sys::check(unsafe { libc::memfd_create(c"ckptfs".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: it was just opened, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The same file by a descriptor of its own, for reading.
///
/// # Errors
/// When `/proc` is not mounted, or no descriptor is left.
pub fn open_again(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_written_is_read() {
        let mut file = super::file().unwrap();
        file.write_all(b"some bytes").unwrap();
        let mut read = [0; 5];
        file.read_exact_at(&mut read, 5).unwrap();
        assert_eq!(&read, b"bytes");
    }
}
