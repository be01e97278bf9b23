//! Our own mount(2) of a FUSE file system, and its end. Without privilege, fusermount3 does it: by absolute path, with
//! an empty environment, and the descriptor comes back over a socket.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::dir::Dir;
use super::error::{LocalError, Result};
use super::{mounts, process, sys};
use crate::error::Kind;

/// What our mounts are called in mountinfo.
pub const FS_TYPE: &str = "fuse.ckptfs";

const SOURCE: &str = "ckptfs";
/// A descriptor is a C int.
const DESCRIPTOR_LEN: u32 = 4;

/// The FUSE device.
pub const DEVICE: &str = "/dev/fuse";
const FUSERMOUNT: [&str; 2] = ["/usr/bin/fusermount3", "/bin/fusermount3"];

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// After `fuse.`: what mountinfo calls the file system.
    pub subtype: String,
    /// Lets other users in, with permissions checked by the kernel.
    pub allow_other: bool,
    /// Largest read that the kernel asks for, in bytes.
    pub max_read: u32,
    /// Who is recorded as the one who mounted. Without `allow_other` only this user gets in.
    pub uid: u32,
    /// The same for the group.
    pub gid: u32,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            subtype: SOURCE.to_owned(),
            allow_other: false,
            max_read: 1 << 20,
            uid: process::euid(),
            gid: process::egid(),
        }
    }
}

/// Checks that a place is fit for a mount: an empty directory of our own, with nothing mounted on it.
///
/// # Errors
/// When it is not; the message says what to do.
pub fn check_point(point: &Path) -> Result<()> {
    fit(point).map(drop)
}

fn fit(point: &Path) -> Result<Dir> {
    let refused = |kind, why: String| LocalError::refused("mount on", point, kind, why);
    let dir = Dir::open(point)?;
    if mounts::is_mount_point(point)? {
        return Err(refused(Kind::Conflict, "something is mounted there already".into())
            .remedy("choose another directory, or unmount it with ckptfs umount"));
    }
    if !dir.list()?.is_empty() {
        return Err(refused(Kind::Conflict, "the directory is not empty".into())
            .remedy("its files would be out of sight; choose an empty directory"));
    }
    let euid = process::euid();
    let owner = dir.stat_self()?.uid;
    if euid != 0 && owner != euid {
        return Err(refused(Kind::Permission, format!("the directory belongs to user {owner}, not to us ({euid})"))
            .remedy("choose an empty directory of your own"));
    }
    Ok(dir)
}

/// Mounts a FUSE file system on an empty directory and returns its open `/dev/fuse`. Read-only, no setuid, no devices, no programs.
///
/// # Errors
/// When the place is not fit, `/dev/fuse` is missing, or permission lacks.
pub fn mount_fuse(point: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let refused = |kind, why: String| LocalError::refused("mount on", point, kind, why);
    let dir = fit(point)?;
    let euid = process::euid();
    if !options.subtype.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(refused(Kind::Invalid, format!("{:?} is no subtype", options.subtype)));
    }
    if euid == 0 {
        if std::env::var_os("FUSERMOUNT_PATH").is_some() {
            return Err(refused(Kind::Invalid, "FUSERMOUNT_PATH is set in a privileged process".into())
                .remedy("unset it: it could make root run another program"));
        }
        match mount_directly(&dir, options) {
            // Root in a container without CAP_SYS_ADMIN may still have a setuid helper.
            Err(e) if e.errno() == Some(libc::EPERM) && fusermount().is_some() => mount_by_helper(point, options),
            other => other,
        }
    } else {
        mount_by_helper(point, options)
    }
}

fn open_device() -> Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(DEVICE).map_err(|e| {
        let remedy = match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => {
                "load the module (modprobe fuse); in a container, pass --device /dev/fuse"
            }
            _ => "in a container, pass --device /dev/fuse and --cap-add SYS_ADMIN",
        };
        LocalError::new("open", DEVICE, e).remedy(remedy)
    })?;
    Ok(file.into())
}

fn mount_directly(dir: &Dir, options: &MountOptions) -> Result<OwnedFd> {
    let device = open_device()?;
    let mut data = format!(
        "fd={},rootmode=40555,user_id={},group_id={},default_permissions,max_read={}",
        device.as_raw_fd(),
        options.uid,
        options.gid,
        options.max_read
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let fail = |e: io::Error| match e.raw_os_error() {
        Some(libc::EINVAL) => LocalError::new("mount on", dir.path(), e)
            .remedy("the kernel did not take /dev/fuse for a FUSE device: in a container, pass --device /dev/fuse"),
        Some(libc::EPERM) => LocalError::new("mount on", dir.path(), e)
            .remedy("mounting needs CAP_SYS_ADMIN: in a container, pass --cap-add SYS_ADMIN, or install fuse3"),
        _ => LocalError::new("mount on", dir.path(), e),
    };
    // By the descriptor that was checked above: the path may be another directory by now.
    let target = format!("/proc/self/fd/{}", std::os::fd::AsFd::as_fd(dir).as_raw_fd());
    let [source, target, fs_type, data] =
        [SOURCE.to_owned(), target, format!("fuse.{}", options.subtype), data].map(|s| sys::cstr(OsStr::new(&s)));
    let (source, target, fs_type, data) =
        (source.map_err(fail)?, target.map_err(fail)?, fs_type.map_err(fail)?, data.map_err(fail)?);
    let flags = libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC | libc::MS_NOATIME;
    // SAFETY: all strings are NUL-terminated and live through the call.
    let mounted = sys::check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), fs_type.as_ptr(), flags, data.as_ptr().cast())
    });
    mounted.map(|_| device).map_err(fail)
}

/// The setuid helper that mounts for users, where it is installed. Never looked for in `PATH`.
#[must_use]
pub fn fusermount() -> Option<PathBuf> {
    FUSERMOUNT.iter().map(PathBuf::from).find(|p| p.exists())
}

fn helper_command(point: &Path) -> Result<Command> {
    let Some(path) = fusermount() else {
        return Err(LocalError::refused("mount on", point, Kind::Unsupported, "fusermount3 is not installed")
            .remedy("install the package fuse3, or run as root"));
    };
    let mut command = Command::new(path);
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn mount_by_helper(point: &Path, options: &MountOptions) -> Result<OwnedFd> {
    let fail = |e| LocalError::new("mount on", point, e);
    let absolute = std::path::absolute(point).map_err(fail)?;
    let (ours, theirs) = UnixStream::pair().map_err(fail)?;
    let mut flags = format!(
        "ro,nosuid,nodev,noexec,noatime,default_permissions,fsname={SOURCE},subtype={},max_read={}",
        options.subtype, options.max_read
    );
    if options.allow_other {
        flags.push_str(",allow_other");
    }
    let theirs = OwnedFd::from(theirs);
    let fd = theirs.as_raw_fd();
    let mut command = helper_command(point)?;
    command.arg("-o").arg(flags).arg("--").arg(&absolute).env("_FUSE_COMMFD", fd.to_string());
    command.stderr(Stdio::piped());
    // SAFETY: fcntl is async-signal-safe, and the closure touches nothing else.
    unsafe {
        command.pre_exec(move || keep_over_exec(fd));
    }
    let child = command.spawn().map_err(|e| LocalError::new("run fusermount3 for", point, e))?;
    drop(theirs);
    let received = receive_fd(&ours);
    let output = child.wait_with_output().map_err(fail)?;
    match received {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(e) => Err(fail(e)),
        _ => {
            let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect();
            let mut error =
                LocalError::refused("mount on", point, Kind::Permission, format!("fusermount3 refused: {said}"));
            if options.allow_other && said.contains("user_allow_other") {
                error = error.remedy("add user_allow_other to /etc/fuse.conf");
            } else if said.contains(DEVICE) {
                error =
                    error.remedy("give users access to it (chmod 666 /dev/fuse, as most systems do), or run as root");
            }
            Err(error)
        }
    }
}

/// Clears close-on-exec of a descriptor that a child shall inherit.
pub(super) fn keep_over_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: fcntl on a number is safe; a closed one gives EBADF.
    sys::check(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).map(drop)
}

/// Takes one descriptor out of a socket. Nothing when the other side closed it.
fn receive_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8; 1];
    // Room for the header and one descriptor, aligned for `cmsghdr`.
    let mut control = [0_u64; 8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: `msghdr` is numbers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = std::ptr::from_mut(&mut part);
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let n = loop {
        // SAFETY: all buffers that `message` points to outlive the call, with the lengths given.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), std::ptr::from_mut(&mut message), libc::MSG_CMSG_CLOEXEC) };
        match io::Error::last_os_error() {
            e if n < 0 && e.kind() == io::ErrorKind::Interrupted => {}
            e if n < 0 => return Err(e),
            _ => break n,
        }
    };
    if n == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel filled `message`; the macros stay within `msg_controllen` bytes of `control`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(std::ptr::from_ref(&message));
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
            || (*header).cmsg_len as usize != libc::CMSG_LEN(DESCRIPTOR_LEN) as usize
        {
            return Ok(None);
        }
        let fd = libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned();
        Ok((fd >= 0).then(|| OwnedFd::from_raw_fd(fd)))
    }
}

/// Unmounts. `lazy`: at once out of sight, gone when the last user is.
///
/// # Errors
/// EBUSY while it is in use, EINVAL when nothing is mounted there.
pub fn unmount(point: &Path, lazy: bool) -> Result<()> {
    let fail = |e| LocalError::new("unmount", point, e);
    let c = sys::cstr(point.as_os_str()).map_err(fail)?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: the path is NUL-terminated.
    match sys::check(unsafe { libc::umount2(c.as_ptr(), flags) }) {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) && fusermount().is_some() => unmount_by_helper(point, lazy),
        Err(e) => Err(fail(e)),
    }
}

fn unmount_by_helper(point: &Path, lazy: bool) -> Result<()> {
    let fail = |e| LocalError::new("unmount", point, e);
    let absolute = std::path::absolute(point).map_err(fail)?;
    let mut command = helper_command(point)?;
    command.arg(if lazy { "-uz" } else { "-u" }).arg("--").arg(&absolute).stderr(Stdio::piped());
    let output = command.output().map_err(|e| LocalError::new("run fusermount3 for", point, e))?;
    if output.status.success() {
        return Ok(());
    }
    let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect();
    let kind = if said.contains("busy") { Kind::Conflict } else { Kind::Permission };
    Err(LocalError::refused("unmount", point, kind, format!("fusermount3 refused: {said}")))
}

/// Whether a FUSE mount is there whose daemon is gone.
#[must_use]
pub fn is_stale(point: &Path) -> bool {
    // Opening it is asked of the daemon each time; its attributes the kernel may remember for a second.
    matches!(std::fs::read_dir(point), Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)))
}

/// Detaches our own dead mounts from a place, until none remains. Says how many there were. Others' mounts and
/// living ones are left alone.
///
/// # Errors
/// When one of them cannot be detached.
pub fn heal(point: &Path) -> Result<u32> {
    let mut healed = 0;
    while is_stale(point) {
        match mounts::mounted_at(point)?.last() {
            Some(top) if top.fs_type == FS_TYPE => unmount(&top.point, true)?,
            _ => {
                return Err(LocalError::refused(
                    "heal the mount on",
                    point,
                    Kind::Conflict,
                    "a dead FUSE mount is there that is not ours",
                )
                .remedy("unmount it with fusermount3 -uz or umount -l"));
            }
        }
        healed += 1;
    }
    Ok(healed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn unfit_places_are_refused() {
        let temp = place();
        let point = temp.path().join("m");
        assert_eq!(mount_fuse(&point, &MountOptions::default()).unwrap_err().kind(), Kind::NotFound);
        std::fs::write(&point, "x").unwrap();
        assert!(mount_fuse(&point, &MountOptions::default()).is_err());
        let error = mount_fuse(temp.path(), &MountOptions::default()).unwrap_err();
        assert!(error.to_string().contains("not empty"), "{error}");
        let error = mount_fuse(Path::new("/proc"), &MountOptions::default()).unwrap_err();
        assert!(error.to_string().contains("mounted there already"), "{error}");
        std::fs::remove_file(&point).unwrap();
        let options = MountOptions { subtype: "x,allow_other".into(), ..MountOptions::default() };
        assert_eq!(mount_fuse(temp.path(), &options).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn a_dead_mount_is_healed() {
        let temp = place();
        let device = mount_fuse(temp.path(), &MountOptions::default()).unwrap();
        let mount = mounts::mounted_at(temp.path()).unwrap().pop().unwrap();
        assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), (FS_TYPE, SOURCE));
        for option in ["ro", "nosuid", "nodev", "noexec", "noatime"] {
            assert!(mount.options.split(',').any(|o| o == option), "{option} in {}", mount.options);
        }
        assert!(mount.super_options.contains("default_permissions"), "{}", mount.super_options);
        assert_eq!(mount.super_option("user_id"), Some(process::euid().to_string().as_str()));
        drop(device);
        assert!(is_stale(temp.path()));
        assert_eq!(heal(temp.path()).unwrap(), 1);
        assert_eq!(heal(temp.path()).unwrap(), 0);
        assert!(!is_stale(temp.path()) && !mounts::is_mount_point(temp.path()).unwrap());
        assert!(unmount(temp.path(), false).is_err());
    }

    #[test]
    fn descriptors_pass_through_sockets() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = File::open("/proc/self/status").unwrap();
        send_fd(&theirs, file.as_fd());
        let received = receive_fd(&ours).unwrap().unwrap();
        let (a, b) = (super::super::FileStat::of(&file).unwrap(), super::super::FileStat::of(&received).unwrap());
        assert!(a.same_inode(&b));
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        std::io::Write::write_all(&mut &theirs, b"x").unwrap();
        assert!(receive_fd(&ours).unwrap().is_none(), "a byte without a descriptor");
        drop(theirs);
        assert!(receive_fd(&ours).unwrap().is_none(), "the end");
    }

    fn send_fd(socket: &UnixStream, fd: std::os::fd::BorrowedFd<'_>) {
        let mut byte = [0_u8; 1];
        let mut control = [0_u64; 8];
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        // SAFETY: as in `receive_fd`: numbers and pointers into live buffers.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = std::ptr::from_mut(&mut part);
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(DESCRIPTOR_LEN) as _;
            let header = libc::CMSG_FIRSTHDR(std::ptr::from_ref(&message));
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_LEN) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), std::ptr::from_ref(&message), 0), 1);
        }
    }
}
