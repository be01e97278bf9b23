//! SIGINT, SIGTERM and SIGHUP, as something to wait for.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use super::sys;

/// Where the handler writes. Never closed, since a signal may come at any time.
static TO: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(signal: libc::c_int) {
    let fd = TO.load(Ordering::Relaxed);
    let word = if signal == libc::SIGHUP { HANGUP } else { END };
    // SAFETY: write is async-signal-safe, the byte lives, and errno is put back for whom we interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fd, std::ptr::from_ref(&word).cast(), 1);
        *libc::__errno_location() = errno;
    }
}

/// What the handler writes for each kind.
const END: u8 = b'!';
const HANGUP: u8 = b'h';

/// What was asked of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// To end: SIGINT or SIGTERM.
    End,
    /// SIGHUP: the terminal is gone, or a daemon shall take up its files anew.
    Hangup,
}

/// A file that would grow beyond the limit of file sizes fails with EFBIG, which can be told with what it was: the signal would end the
/// process without a word, and a mount with it.
///
/// # Errors
/// When the kernel refuses.
pub fn too_long_files_fail() -> io::Result<()> {
    // SAFETY: `sigaction` is numbers, a set and a pointer, for which zero is a valid value; nothing is called.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_IGN;
        sys::check(libc::sigaction(libc::SIGXFSZ, std::ptr::from_ref(&action), std::ptr::null_mut())).map(drop)
    }
}

/// What signals ask of this process.
#[derive(Debug)]
pub struct Signals(File);

impl Signals {
    /// From now on the first SIGINT or SIGTERM ends nothing, but is told by [`Signals::wait`]; a second one of the same kind ends the process
    /// as usual. Each SIGHUP is told, unless it would only say that a terminal is gone (`hangup` false) and this process was started with it
    /// ignored, as `nohup` does.
    ///
    /// # Errors
    /// When the kernel refuses, or somebody in this process waits already.
    pub fn catch(hangup: bool) -> io::Result<Self> {
        let (from, to) = io::pipe()?;
        let to = OwnedFd::from(to);
        if TO.compare_exchange(-1, to.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "signals are waited for already"));
        }
        // The handler owns it now.
        let _ = to.into_raw_fd();
        for (signal, once) in
            [(libc::SIGINT, libc::SA_RESETHAND), (libc::SIGTERM, libc::SA_RESETHAND), (libc::SIGHUP, 0)]
        {
            // SAFETY: `sigaction` is numbers, a set and a pointer, for which zero is a valid value; the handler is async-signal-safe.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                sys::check(libc::sigaction(signal, std::ptr::null(), std::ptr::from_mut(&mut action)))?;
                if signal == libc::SIGHUP && !hangup && action.sa_sigaction == libc::SIG_IGN {
                    continue;
                }
                action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART | once;
                sys::check(libc::sigaction(signal, std::ptr::from_ref(&action), std::ptr::null_mut()))?;
            }
        }
        Ok(Self(File::from(OwnedFd::from(from))))
    }

    /// Waits for the next one.
    ///
    /// # Errors
    /// When the pipe breaks.
    pub fn wait(&mut self) -> io::Result<Asked> {
        let mut word = [0];
        self.0.read_exact(&mut word)?;
        Ok(if word == [HANGUP] { Asked::Hangup } else { Asked::End })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// In a process of its own: a limit cannot be taken back.
    #[test]
    fn a_file_that_may_not_grow_is_an_error_and_no_end() {
        const CHILD: &str = "CKPTFS_TEST_FILE_LIMIT";
        if std::env::var_os(CHILD).is_some() {
            super::too_long_files_fail().unwrap();
            let limit = libc::rlimit { rlim_cur: 10, rlim_max: 10 };
            // SAFETY: the limit is a live `rlimit`.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
            let file = tempfile::tempfile().unwrap();
            let error = std::io::Write::write_all(&mut &file, &[7; 100]).unwrap_err();
            std::process::exit(if error.raw_os_error() == Some(libc::EFBIG) { 42 } else { 1 });
        }
        let name = "local::signal::tests::a_file_that_may_not_grow_is_an_error_and_no_end";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let ended = command.args([name, "--exact"]).env(CHILD, "1").output().unwrap().status;
        assert_eq!((ended.code(), ended.signal()), (Some(42), None));
    }
}
