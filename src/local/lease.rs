//! Whether anybody has a file open, in any process, and also the kernel on behalf of one (a passthrough reader whose daemon died): asked
//! by a lease, which the kernel gives only when nobody has.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::sys;

/// Of asm-generic/fcntl.h, which x86 and ARM use; not in `libc`.
const F_SETSIG: libc::c_int = 10;

/// The file is open nowhere but in our hands. While this lives, who opens it waits: drop it soon.
#[derive(Debug)]
pub struct Alone<'a>(Option<&'a File>);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.0 {
            // SAFETY: plain numbers on an open descriptor.
            let _ = sys::check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) });
        }
    }
}

/// Asks for a file that was opened for reading, by this descriptor and no clone of it. Nothing: somebody else has it open. On a file
/// system without leases nobody can tell, and the answer is that nobody has.
///
/// # Errors
/// When the kernel refuses for another reason.
pub fn alone(file: &File) -> io::Result<Option<Alone<'_>>> {
    let fd = file.as_raw_fd();
    // Who opens the file while we have the lease waits for us, and we are told by a signal. Its default, SIGIO, would end the
    // process; SIGURG is ignored where nobody asks for it.
    // SAFETY: plain numbers on an open descriptor.
    sys::check(unsafe { libc::fcntl(fd, F_SETSIG, libc::SIGURG) })?;
    // SAFETY: as above.
    match sys::check(unsafe { libc::fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK) }) {
        Ok(_) => Ok(Some(Alone(Some(file)))),
        Err(e) => match e.raw_os_error() {
            Some(libc::EAGAIN) => Ok(None),
            // No leases there, or not for us.
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EACCES | libc::EPERM | libc::ENOLCK) => Ok(Some(Alone(None))),
            _ => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn an_open_file_is_told_from_one_that_nobody_has() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"abc").unwrap();
        let ours = File::open(&path).unwrap();
        assert!(alone(&ours).unwrap().is_some());
        let other = File::open(&path).unwrap();
        assert!(alone(&ours).unwrap().is_none());
        drop(other);
        assert!(alone(&ours).unwrap().is_some());
        // Another process.
        let mut sleep =
            std::process::Command::new("sleep").arg("60").stdin(File::open(&path).unwrap()).spawn().unwrap();
        assert!(alone(&ours).unwrap().is_none());
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(alone(&ours).unwrap().is_some());
    }

    #[test]
    fn who_opens_it_meanwhile_waits_and_nobody_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"abc").unwrap();
        let ours = File::open(&path).unwrap();
        let lease = alone(&ours).unwrap().unwrap();
        let begun = Instant::now();
        let opener = thread::spawn({
            let path = path.clone();
            move || std::fs::read(path).unwrap()
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!opener.is_finished());
        drop(lease);
        assert_eq!(opener.join().unwrap(), b"abc");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}
