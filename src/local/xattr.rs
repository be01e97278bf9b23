//! Extended attributes, by descriptor and, without following symlinks, by path.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use super::error::{LocalError, Result};
use super::sys;

/// Longest value that Linux takes.
const VALUE_LEN: usize = 64 << 10;

fn name(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Reads a value through `call`, which fills a buffer and says how long the value is.
fn read(call: impl Fn(&mut [u8]) -> isize) -> io::Result<Option<Vec<u8>>> {
    // Ours have 49 bytes: one call is enough for them.
    let mut buffer = vec![0; 256];
    loop {
        match usize::try_from(call(&mut buffer)) {
            Ok(n) => {
                buffer.truncate(n);
                return Ok(Some(buffer));
            }
            Err(_) => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ENODATA) => return Ok(None),
                e if e.raw_os_error() == Some(libc::ERANGE) && buffer.len() < VALUE_LEN => {
                    buffer.resize(VALUE_LEN, 0);
                }
                e => return Err(e),
            },
        }
    }
}

fn get_raw(fd: libc::c_int, name: &CStr, buffer: &mut [u8]) -> isize {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into the live buffer; `name` is NUL-terminated.
    unsafe { libc::fgetxattr(fd, name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
}

/// The value of an attribute of an open file; nothing when it has none of that name.
///
/// # Errors
/// EOPNOTSUPP where the file system has no such attributes, and whatever else the kernel says.
pub fn get(file: impl AsFd, attribute: &str) -> io::Result<Option<Vec<u8>>> {
    let name = name(attribute)?;
    let fd = file.as_fd().as_raw_fd();
    read(|buffer| get_raw(fd, &name, buffer))
}

/// Sets an attribute of an open file.
///
/// # Errors
/// Whatever the kernel says.
pub fn set(file: impl AsFd, attribute: &str, value: &[u8]) -> io::Result<()> {
    let name = name(attribute)?;
    // SAFETY: the kernel reads `value.len()` bytes of the live slice; `name` is NUL-terminated.
    sys::check(unsafe {
        libc::fsetxattr(file.as_fd().as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })
    .map(drop)
}

/// Removes an attribute of an open file. False: it had none of that name.
///
/// # Errors
/// Whatever else the kernel says.
pub fn remove(file: impl AsFd, attribute: &str) -> io::Result<bool> {
    let name = name(attribute)?;
    // SAFETY: the descriptor is open and `name` NUL-terminated.
    match sys::check(unsafe { libc::fremovexattr(file.as_fd().as_raw_fd(), name.as_ptr()) }) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENODATA) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The value of an attribute of what a path leads to; nothing when it has none of that name.
pub(super) fn get_at(path: &OsStr, attribute: &str) -> io::Result<Option<Vec<u8>>> {
    let c = sys::cstr(path)?;
    let name = name(attribute)?;
    read(|buffer| {
        // SAFETY: both strings are NUL-terminated; the kernel writes at most `buffer.len()` bytes.
        unsafe { libc::getxattr(c.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    })
}

/// The value of an attribute of what a path names, of a symlink itself.
///
/// # Errors
/// Whatever the kernel says.
pub fn lget(path: &Path, attribute: &str) -> Result<Option<Vec<u8>>> {
    let get = || {
        let c = sys::cstr(path.as_os_str())?;
        let name = name(attribute)?;
        read(|buffer| {
            // SAFETY: both strings are NUL-terminated; the kernel writes at most `buffer.len()` bytes.
            unsafe { libc::lgetxattr(c.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
        })
    };
    get().map_err(|e| LocalError::new("read an extended attribute of", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = temp.path().join("f");
        let file = std::fs::File::create(&path).unwrap();
        assert_eq!(get(&file, "user.x").unwrap(), None);
        assert!(!remove(&file, "user.x").unwrap());
        // Longer than the first buffer.
        let value = vec![1; 1000];
        set(&file, "user.x", &value).unwrap();
        assert_eq!(get(&file, "user.x").unwrap(), Some(value.clone()));
        assert_eq!(lget(&path, "user.x").unwrap(), Some(value));
        set(&file, "user.x", b"").unwrap();
        assert_eq!(get(&file, "user.x").unwrap(), Some(Vec::new()));
        assert!(remove(&file, "user.x").unwrap());
        assert!(set(&file, "user.\0", b"").is_err());
        std::os::unix::fs::symlink(&path, temp.path().join("l")).unwrap();
        set(&file, "user.x", b"1").unwrap();
        assert_ne!(lget(&temp.path().join("l"), "user.x").ok().flatten(), Some(b"1".to_vec()));
    }
}
