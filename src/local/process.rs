//! This process and its surroundings: users, limits, detached children, the room on a disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::error::{LocalError, Result};
use super::mount::keep_over_exec;
use super::sys;

/// Whether this process may make files in a directory with these attributes, by owner and mode (root may anywhere).
#[must_use]
pub fn may_write(stat: &super::FileStat) -> bool {
    let bits = |shift: u32| stat.mode >> shift & 0o3 == 0o3;
    euid() == 0 || (stat.uid == euid() && bits(6)) || (stat.gid == egid() && bits(3)) || bits(0)
}

/// Effective user id.
#[must_use]
pub fn euid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Effective group id.
#[must_use]
pub fn egid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getegid() }
}

/// Real user id: who started a program that runs with somebody else's rights.
#[must_use]
pub fn uid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::getuid() }
}

/// No core dump and no ptrace by others: credentials are in memory.
///
/// # Errors
/// When the kernel refuses.
pub fn set_not_dumpable() -> io::Result<()> {
    // SAFETY: this prctl takes plain numbers.
    sys::check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Raises the soft limit of open files as far as the hard one lets it. Returns the limit now.
///
/// # Errors
/// When the kernel refuses.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the buffer is a live `rlimit`.
    sys::check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, std::ptr::from_mut(&mut limit)) })?;
    let target = wanted.min(limit.rlim_max);
    if limit.rlim_cur < target {
        limit.rlim_cur = target;
        // SAFETY: as above.
        sys::check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, std::ptr::from_ref(&limit)) })?;
    }
    Ok(limit.rlim_cur)
}

/// Whether a process of that id runs. A hint: ids are used again. One that has ended and is not reaped yet does not run: an init that reaps
/// late, or never, as in many containers, must keep nobody waiting.
#[must_use]
pub fn alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    if pid <= 0 {
        return false;
    }
    // SAFETY: signal 0 is only a question.
    match sys::check(unsafe { libc::kill(pid, 0) }) {
        Ok(_) => !ended(pid),
        Err(e) => e.raw_os_error() == Some(libc::EPERM) && !ended(pid),
    }
}

/// Whether the kernel says that a process is a zombie. The name before the state may hold any character, `)` too.
fn ended(pid: libc::pid_t) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Asks a process to end.
///
/// # Errors
/// ESRCH when there is none, EPERM when it is another user's.
pub fn terminate(pid: u32) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|p| *p > 1);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: plain numbers; the id is positive, so that no process group is meant.
    sys::check(unsafe { libc::kill(pid, libc::SIGTERM) }).map(drop)
}

/// Ends the process once everything was done and closed. What RocksDB's library holds in static tables is not taken down piece by
/// piece, which would cost a short command a tenth of its time.
pub fn leave(code: u8) -> ! {
    // Whoever read our output may be gone.
    let _ = io::stdout().flush().and_then(|()| io::stderr().flush());
    // SAFETY: it does not return, and no destructor is owed anything: files that had to be durable were synced when they were written.
    unsafe { libc::_exit(i32::from(code)) }
}

/// This machine's name.
#[must_use]
pub fn hostname() -> String {
    let mut buffer = [0_u8; 256];
    // SAFETY: the kernel writes at most the length given, which leaves the last byte zero.
    let result = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let length = buffer.iter().position(|&b| b == 0).unwrap_or(0);
    let name = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
    if result < 0 || name.is_empty() { "localhost".to_owned() } else { name }
}

/// Gives an open file another owner.
///
/// # Errors
/// EPERM without privilege.
pub fn fchown(file: impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    sys::check(unsafe { libc::fchown(file.as_fd().as_raw_fd(), uid, gid) }).map(drop)
}

/// Gives a name below a directory another owner: of a symlink, the symlink's.
///
/// # Errors
/// EPERM without privilege.
pub fn lchown_at(dir: &super::Dir, name: impl AsRef<OsStr>, uid: u32, gid: u32) -> Result<()> {
    let name = name.as_ref();
    let chown = || {
        let c = super::dir::component(name)?;
        // SAFETY: the directory is open and the name NUL-terminated.
        sys::check(unsafe { libc::fchownat(dir.as_fd().as_raw_fd(), c.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW) })
    };
    chown().map(drop).map_err(|e| LocalError::entry("change the owner of", dir.path(), name, e))
}

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// All bytes.
    pub total: u64,
    /// Bytes that a user without privilege can still write.
    pub available: u64,
    /// All inodes; zero where they are not counted.
    pub inodes: u64,
    /// Inodes that are free.
    pub free_inodes: u64,
}

/// Whether there is room to go on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scarcity {
    /// There is.
    Enough,
    /// Less than one GiB: a table or two.
    Little,
    /// Less than 16 MiB: no bundle fits.
    Full,
}

impl Room {
    /// Whether there is room to go on with.
    #[must_use]
    pub fn scarcity(&self) -> Scarcity {
        match self.available {
            0..0x100_0000 => Scarcity::Full,
            0x100_0000..0x4000_0000 => Scarcity::Little,
            _ => Scarcity::Enough,
        }
    }
}

/// The room on the file system of an open file.
///
/// # Errors
/// Whatever the kernel says.
pub fn room_of(file: impl AsFd) -> io::Result<Room> {
    let s = sys::fstatfs(file.as_fd())?;
    let unit = u64::try_from(s.f_frsize).unwrap_or(0);
    let unit = if unit == 0 { u64::try_from(s.f_bsize).unwrap_or(0) } else { unit };
    Ok(Room {
        total: s.f_blocks.saturating_mul(unit),
        available: s.f_bavail.saturating_mul(unit),
        inodes: s.f_files,
        free_inodes: s.f_ffree,
    })
}

/// The room on the file system of a directory.
///
/// # Errors
/// When the path is no directory.
pub fn statvfs(path: &Path) -> Result<Room> {
    room_of(&super::Dir::open(path)?).map_err(|e| LocalError::new("look at the file system of", path, e))
}

/// What a file will be read like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// From front to back.
    Sequential,
    /// Soon: start reading.
    WillNeed,
    /// Not again: its pages may go.
    DontNeed,
}

/// posix_fadvise: a hint, whose failure changes nothing. A length of zero means to the end.
pub fn fadvise(file: impl AsFd, offset: u64, length: u64, advice: Advice) {
    let advice = match advice {
        Advice::Sequential => libc::POSIX_FADV_SEQUENTIAL,
        Advice::WillNeed => libc::POSIX_FADV_WILLNEED,
        Advice::DontNeed => libc::POSIX_FADV_DONTNEED,
    };
    if let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) {
        // SAFETY: plain numbers on an open descriptor.
        let _ = unsafe { libc::posix_fadvise(file.as_fd().as_raw_fd(), offset, length, advice) };
    }
}

/// Frees the blocks of a range; the length stays. False where the file system cannot.
///
/// # Errors
/// When the disk fails.
pub fn punch_hole(file: impl AsFd, offset: u64, length: u64) -> io::Result<bool> {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain numbers on an open descriptor.
    match sys::retry(|| unsafe { libc::fallocate(file.as_fd().as_raw_fd(), mode, offset, length) }) {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Opens a log to write on at its end, made where it is missing. No link is followed and no pipe waited for: a log may lie in the
/// directory of another user than the one who writes it.
///
/// # Errors
/// When it cannot be opened, or is no ordinary file of one name.
pub fn open_log(path: &Path) -> Result<File> {
    let fail = |e| LocalError::new("open", path, e);
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(fail)?;
    let stat = super::FileStat::of(&file).map_err(fail)?;
    if stat.mode & libc::S_IFMT != libc::S_IFREG || stat.nlink != 1 {
        return Err(fail(io::Error::other("it is no ordinary file with one name (move it away)")));
    }
    Ok(file)
}

/// Lets standard error go on in this file, made where it is missing: whoever moved the old one away has all of it.
///
/// # Errors
/// When it cannot be opened: then all stays as it was.
pub fn move_stderr(path: &Path) -> Result<()> {
    let fail = |e| LocalError::new("open", path, e);
    let file = open_log(path)?;
    // SAFETY: both descriptors are open; the kernel puts one in the place of the other in one step.
    sys::check(unsafe { libc::dup2(file.as_raw_fd(), libc::STDERR_FILENO) }).map(drop).map_err(fail)
}

/// Names the descriptor on which a detached child says that it is ready.
const READY_FD: &str = "CKPTFS_READY_FD";

/// Longest message of a child that failed to start.
const MESSAGE_LEN: u64 = 64 << 10;

/// A program that runs on its own.
#[derive(Debug)]
pub struct Detached {
    /// Its process id.
    pub pid: u32,
    ready: File,
}

/// How a detached child's start went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Started {
    /// It said that it is ready.
    Ready,
    /// It said why it is not.
    Failed(String),
    /// It ended without a word.
    Died,
    /// It said nothing in time and still runs.
    Silent,
}

/// Starts a program in a session of its own: no terminal, no standard streams (errors go to `log` where one is given), working directory `/`. A
/// program with threads cannot fork itself into the background; it starts itself anew. No secret belongs into `args`.
///
/// # Errors
/// When it cannot be started.
pub fn spawn_detached(exe: &Path, args: &[impl AsRef<OsStr>], log: Option<&File>) -> Result<Detached> {
    let fail = |e| LocalError::new("start", exe, e);
    let (ready, child_end) = io::pipe().map_err(fail)?;
    let ready = File::from(OwnedFd::from(ready));
    let child_end = OwnedFd::from(child_end);
    let fd = child_end.as_raw_fd();
    let stderr = match log {
        Some(file) => Stdio::from(file.try_clone().map_err(fail)?),
        None => Stdio::null(),
    };
    let mut command = Command::new(exe);
    command.args(args).current_dir("/").env(READY_FD, fd.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    // SAFETY: setsid and fcntl are async-signal-safe, and the closure touches nothing else.
    unsafe {
        command.pre_exec(move || {
            sys::check(libc::setsid())?;
            keep_over_exec(fd)
        });
    }
    let child = command.spawn().map_err(fail)?;
    Ok(Detached { pid: child.id(), ready })
}

impl Detached {
    /// Waits until the child said how its start went.
    ///
    /// # Errors
    /// When the pipe cannot be read.
    pub fn wait(mut self, patience: Duration) -> io::Result<Started> {
        let begun = Instant::now();
        let mut poll = libc::pollfd { fd: self.ready.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let milliseconds = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX);
            // SAFETY: one live `pollfd`.
            match sys::check(unsafe { libc::poll(std::ptr::from_mut(&mut poll), 1, milliseconds) }) {
                Ok(0) => return Ok(Started::Silent),
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        // The child writes once and closes; whatever it says comes in one piece before the end of file.
        let mut first = [0; 1];
        if self.ready.read(&mut first)? == 0 {
            return Ok(Started::Died);
        }
        if first == *b"+" {
            return Ok(Started::Ready);
        }
        let mut message = Vec::new();
        self.ready.take(MESSAGE_LEN).read_to_end(&mut message)?;
        Ok(Started::Failed(String::from_utf8_lossy(&message).into_owned()))
    }
}

/// The child's end of a detached start.
#[derive(Debug)]
pub struct ReadyPipe(File);

impl ReadyPipe {
    /// The pipe that [`spawn_detached`] left us; nothing when we were not started by it. Call once, early.
    #[must_use]
    pub fn inherited() -> Option<Self> {
        let fd: libc::c_int = std::env::var(READY_FD).ok()?.parse().ok().filter(|fd| *fd > 2)?;
        // SAFETY: fcntl on a number is safe; a closed one gives EBADF.
        sys::check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).ok()?;
        // SAFETY: it is open, was left to us under this name, and nobody else in this program takes it.
        let file = unsafe { File::from_raw_fd(fd) };
        let mode = super::FileStat::of(&file).ok()?.mode;
        if mode & libc::S_IFMT != libc::S_IFIFO {
            // Not ours: somebody set the variable. Leave their descriptor open.
            std::mem::forget(file);
            return None;
        }
        Some(Self(file))
    }

    /// Whether this process is a detached child that has not taken its pipe yet.
    #[must_use]
    pub fn is_inherited() -> bool {
        std::env::var_os(READY_FD).is_some()
    }

    /// Says that the start succeeded.
    ///
    /// # Errors
    /// When the parent is gone.
    pub fn ready(mut self) -> io::Result<()> {
        self.0.write_all(b"+")
    }

    /// Says why it did not.
    ///
    /// # Errors
    /// When the parent is gone.
    pub fn failed(mut self, message: &str) -> io::Result<()> {
        self.0.write_all(format!("-{message}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_and_the_dead() {
        assert!(alive(std::process::id()));
        assert!(!alive(0) && !alive(u32::MAX) && terminate(0).is_err() && terminate(1).is_err());
        let mut child = Command::new("/bin/true").spawn().unwrap();
        let begun = std::time::Instant::now();
        while alive(child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(20), "a zombie does not run");
        }
        child.wait().unwrap();
        assert!(!alive(child.id()));
        assert!(!hostname().is_empty());
        assert!(raise_open_files(64).unwrap() >= 64);
    }

    #[test]
    fn detached_children_report() {
        let shell = Path::new("/bin/sh");
        let run =
            |script: &str| spawn_detached(shell, &["-c", script], None).unwrap().wait(Duration::from_secs(20)).unwrap();
        assert_eq!(run("printf + >/proc/self/fd/$CKPTFS_READY_FD"), Started::Ready);
        assert_eq!(run("printf -- '-no luck' >/proc/self/fd/$CKPTFS_READY_FD"), Started::Failed("no luck".into()));
        assert_eq!(run("exit 3"), Started::Died);
        let slow = spawn_detached(shell, &["-c", "sleep 2"], None).unwrap();
        assert_eq!(slow.wait(Duration::from_millis(50)).unwrap(), Started::Silent);
    }

    #[test]
    fn a_detached_child_has_a_session_of_its_own() {
        let temp = tempfile::tempdir().unwrap();
        let log = File::create(temp.path().join("log")).unwrap();
        let script = "cut -d' ' -f6 /proc/self/stat >&2; pwd >&2; printf + >/proc/self/fd/$CKPTFS_READY_FD";
        let child = spawn_detached(Path::new("/bin/sh"), &["-c", script], Some(&log)).unwrap();
        let pid = child.pid;
        assert_eq!(child.wait(Duration::from_secs(20)).unwrap(), Started::Ready);
        assert_eq!(std::fs::read_to_string(temp.path().join("log")).unwrap(), format!("{pid}\n/\n"));
    }

    #[test]
    fn holes_and_room() {
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let room = statvfs(temp.path()).unwrap();
        assert!(room.total > room.available && room.available > 0);
        let mut file = File::options().read(true).write(true).create_new(true).open(temp.path().join("f")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        fadvise(&file, 0, 0, Advice::DontNeed);
        let before = super::super::FileStat::of(&file).unwrap().blocks;
        if punch_hole(&file, 0, 1 << 19).unwrap() {
            let after = super::super::FileStat::of(&file).unwrap();
            assert!(after.blocks <= before / 2 + 64 && after.size == 1 << 20, "{} {before}", after.blocks);
        }
    }
}
