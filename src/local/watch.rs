//! Another process, which outlives a killed daemon by a moment and ends its FUSE connection.
//!
//! The kernel ends a connection when its last descriptor is closed, and a killed process closes them when its last thread is gone. But a
//! thread that tells the kernel to forget a name waits for the directory's lock, beyond the reach of `kill -9`; whoever lists that
//! directory holds the lock and waits for the daemon's answer, which does not come any more. So the reader, the dead daemon and whoever
//! waits for its end would wait for ever. (The same with the pages of an inode.) Only an abort of the connection, which another
//! process asks for, lets all of them go. Whether the process is dead, its threads notwithstanding, `/proc/PID/stat` says.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use super::sys;

/// How often the watcher looks. Readers of a killed daemon wait at most this long for their error.
const PAUSE_MS: libc::c_int = 200;
/// Where the kernel shows its FUSE connections, if somebody mounted that.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";
/// `FSCONFIG_CMD_CREATE` of `linux/mount.h`.
const CMD_CREATE: libc::c_uint = 6;
/// Of a `/proc/PID/stat` line: process id, name of at most 64 bytes, and the state that is looked for.
const STAT_LEN: usize = 160;

/// A running watcher. Dropped, it is ended; without that, it ends with the process that it watches. It is no child of this process:
/// whoever waits for children of his own does not meet it.
#[derive(Debug)]
pub struct Watcher {
    /// When it is closed, by whatever end of this process too, there is nothing to watch any more.
    _alive: OwnedFd,
}

impl Watcher {
    /// Watches this process for a mount's connection, by the device number of the mount.
    ///
    /// # Errors
    /// When the kernel shows no connections and we may not make it, or no process can be made. The mount works without.
    pub fn start(dev: u64) -> io::Result<Self> {
        let abort = abort_of(libc::minor(dev))?;
        let stat = File::open("/proc/self/stat")?;
        let (theirs, alive) = io::pipe()?;
        let mut kept = [abort.as_raw_fd(), stat.as_raw_fd(), theirs.as_raw_fd()];
        let files = Files { abort: kept[0], stat: kept[1], alive: kept[2] };
        kept.sort_unstable();
        // SAFETY: between fork and its end the child makes system calls alone, on values of its own stack: it takes no lock and
        // allocates nothing, whatever other threads held at that moment.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => begin(&files, &kept),
            child => {
                // SAFETY: plain numbers. It ends at once: only its own child stays.
                sys::retry(|| unsafe { libc::waitpid(child, ptr::null_mut(), 0) })?;
                Ok(Self { _alive: alive.into() })
            }
        }
    }
}

/// What the watcher has open.
struct Files {
    abort: RawFd,
    stat: RawFd,
    alive: RawFd,
}

/// The file that ends a connection when it is written to. Where nobody mounted the kernel's list of connections, we make one that is
/// nowhere to be seen.
fn abort_of(minor: libc::c_uint) -> io::Result<File> {
    match File::options().write(true).open(format!("{CONNECTIONS}/{minor}/abort")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let system = sys::cstr(OsStr::new("fusectl"))?;
    // SAFETY: the name is NUL-terminated; the results are descriptors or -1.
    let made = unsafe { descriptor(libc::syscall(libc::SYS_fsopen, system.as_ptr(), 1))? };
    // SAFETY: the descriptor is open; this command takes no key, value or number.
    let created = unsafe {
        let none = ptr::null::<libc::c_char>();
        libc::syscall(libc::SYS_fsconfig, made.as_raw_fd(), CMD_CREATE, none, none, 0)
    };
    if created != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open.
    let mount = unsafe { descriptor(libc::syscall(libc::SYS_fsmount, made.as_raw_fd(), 1, 0))? };
    let name = sys::cstr(OsStr::new(&format!("{minor}/abort")))?;
    sys::openat(mount.as_fd(), &name, libc::O_WRONLY, 0).map(File::from)
}

/// # Safety
/// The number was returned by a system call that opens a descriptor, a moment ago.
unsafe fn descriptor(returned: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(returned) {
        // SAFETY: it is open and nobody else has it, as the caller says.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The other process, or the one that makes it and ends. Everything here is safe between fork and exec.
fn begin(files: &Files, kept: &[RawFd; 3]) -> ! {
    // SAFETY: system calls on numbers and on memory of this stack.
    unsafe {
        if libc::fork() != 0 {
            libc::_exit(0);
        }
        // What is meant for the daemon, such as Ctrl-C or a SIGTERM to its group, is not meant for us.
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
        libc::prctl(libc::PR_SET_NAME, c"ckptfs-watch".as_ptr());
        // Whoever waits for the end of the daemon's output, its locks or its connection must not wait for us.
        let [low, middle, high] = *kept;
        close_from_to(0, low - 1);
        close_from_to(low + 1, middle - 1);
        close_from_to(middle + 1, high - 1);
        close_from_to(high + 1, RawFd::MAX);
        libc::chdir(c"/".as_ptr());
        give_memory_back();
        watch(files)
    }
}

/// Unmaps what the watched process had in large pieces of memory at the moment of the fork, and what would be kept for as long as it
/// lives: that may be a database's cache. What is small may hold what libc needs, and what holds our own stack is needed.
fn give_memory_back() {
    let mut buffer = [0_u8; 4096];
    let here = (&raw const buffer).addr();
    // SAFETY: system calls on memory of this stack. What is unmapped is private memory without a name that nothing here points into:
    // neither code nor a library's own variables are, and this stack, with its thread's variables, is left out.
    unsafe {
        let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY);
        let mut kept = 0;
        loop {
            let room = buffer.get_mut(kept..).unwrap_or_default();
            let Ok(n @ 1..) = usize::try_from(libc::read(maps, room.as_mut_ptr().cast(), room.len())) else { break };
            let filled = kept.saturating_add(n).min(buffer.len());
            let mut at = 0;
            let text = buffer.get(..filled).unwrap_or_default();
            while let Some(length) = text.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'\n')) {
                let line = text.get(at..at.saturating_add(length)).unwrap_or_default();
                if let Some((start, end)) = large_piece(line).filter(|(start, end)| !(*start..*end).contains(&here)) {
                    libc::munmap(ptr::with_exposed_provenance_mut(start), end - start);
                }
                at = at.saturating_add(length).saturating_add(1);
            }
            // A line that is not whole yet.
            buffer.copy_within(at.min(filled)..filled, 0);
            kept = filled.saturating_sub(at);
        }
        libc::close(maps);
    }
}

/// Where a line of `/proc/PID/maps` tells of at least so many bytes of private, writable memory of no file: `start-end rw-p offset dev inode name`.
fn large_piece(line: &[u8]) -> Option<(usize, usize)> {
    const LARGE: usize = 1 << 20;
    let hex = |digits: &[u8]| {
        digits.iter().try_fold(0_usize, |sum, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            sum.checked_mul(16)?.checked_add(usize::try_from(digit).ok()?)
        })
    };
    let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
    let mut range = words.next()?.split(|b| *b == b'-');
    let (start, end) = (hex(range.next()?)?, hex(range.next()?)?);
    let is_ours = words.next()?.get(1..4).is_some_and(|p| p.first() == Some(&b'w') && p.last() == Some(&b'p'));
    let of_a_file = words.nth(2)? != b"0";
    let named = words.next().is_some_and(|name| name != b"[heap]");
    (is_ours && !of_a_file && !named && end.checked_sub(start)? >= LARGE).then_some((start, end))
}

fn watch(files: &Files) -> ! {
    // SAFETY: system calls on numbers and on memory of this stack.
    unsafe {
        loop {
            // No event is asked for: the other end's close is always told.
            let mut alive = libc::pollfd { fd: files.alive, events: 0, revents: 0 };
            if libc::poll(&raw mut alive, 1, PAUSE_MS) > 0 {
                libc::_exit(0);
            }
            let mut line = [0_u8; STAT_LEN];
            let n = libc::pread(files.stat, line.as_mut_ptr().cast(), STAT_LEN, 0);
            if !is_alive(line.get(..usize::try_from(n).unwrap_or(0)).unwrap_or_default()) {
                libc::write(files.abort, c"1".as_ptr().cast(), 1);
                libc::_exit(0);
            }
        }
    }
}

/// # Safety
/// Nobody of this process uses these descriptors any more.
unsafe fn close_from_to(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: as the caller says; kernels before 5.9 refuse, and leave them open.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}

/// By a line of `/proc/PID/stat`; an empty one is that of a process that is gone. A killed process that still has threads is a zombie.
fn is_alive(line: &[u8]) -> bool {
    let mut state = None;
    for (at, byte) in line.iter().enumerate() {
        // The name may have parentheses of its own: the last one ends it.
        if *byte == b')' {
            state = line.get(at + 2);
        }
    }
    !matches!(state, None | Some(b'Z' | b'X' | b'x'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_behind_any_name() {
        assert!(is_alive(b"12 (ckptfs) S 1 12"));
        assert!(is_alive(b"12 (a) Z) R 1 12"));
        assert!(!is_alive(b"12 (ckptfs) Z 1 12"));
        assert!(!is_alive(b"12 (a) S) X 1 12"));
        assert!(!is_alive(b""));
        assert!(!is_alive(b"12 (cut off"));
    }

    #[test]
    fn large_memory_of_no_file_is_found() {
        assert_eq!(
            large_piece(b"7f00000000-7f00200000 rw-p 00000000 00:00 0 "),
            Some((0x7f_0000_0000, 0x7f_0020_0000))
        );
        assert_eq!(large_piece(b"00a00000-00c00000 rw-p 00000000 00:00 0      [heap]"), Some((0xa0_0000, 0xc0_0000)));
        for other in [
            &b"7f00000000-7f00010000 rw-p 00000000 00:00 0 "[..],
            b"7f00000000-7f00200000 r-xp 00000000 fe:01 77 /usr/lib/libc.so.6",
            b"7f00000000-7f00200000 rw-p 00000000 fe:01 77 /usr/lib/libc.so.6",
            b"7f00000000-7f00200000 rw-s 00000000 00:00 0 ",
            b"7f00000000-7f00200000 r--p 00000000 00:00 0 ",
            b"7ffc00000000-7ffc00200000 rw-p 00000000 00:00 0 [stack]",
            b"7f00200000-7f00000000 rw-p 00000000 00:00 0 ",
            b"ffffffffffffffffff-0 rw-p 00000000 00:00 0 ",
            b"7f00000000-7f0020",
            b"",
        ] {
            assert_eq!(large_piece(other), None, "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_connection_that_is_not_there_is_told() {
        assert!(Watcher::start(libc::makedev(0, 0xf_ffff)).is_err());
    }
}
