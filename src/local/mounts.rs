//! What is mounted where: `/proc/self/mountinfo`, file system types, the edges of a device.

use std::ffi::OsString;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{LocalError, Result};
use super::sys;

/// One line of mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u64,
    /// Device of its file system.
    pub dev: u64,
    /// What part of the file system is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    /// Options of the mount.
    pub options: String,
    /// Type of the file system: `ext4`, `fuse.ckptfs`.
    pub fs_type: String,
    /// What is mounted: a device, or a word.
    pub source: String,
    /// Options of the file system: `rw,user_id=0,group_id=0`.
    pub super_options: String,
}

impl Mount {
    /// The value of an option of the file system, such as `user_id`.
    #[must_use]
    pub fn super_option(&self, key: &str) -> Option<&str> {
        self.super_options.split(',').find_map(|o| o.strip_prefix(key)?.strip_prefix('='))
    }
}

/// The families of file systems that we treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FsType {
    /// A file system of this machine.
    Local,
    /// NFS.
    Nfs,
    /// SMB or CIFS.
    Smb,
    /// 9p, as virtual machines have it.
    NineP,
    /// Anything served by a process, including ours.
    Fuse,
    /// Another one that several machines share: AFS, Ceph, OCFS2, GFS2, Lustre.
    Shared,
}

impl FsType {
    /// Whether link, rename and fsync there may not do what the local ones do.
    #[must_use]
    pub fn is_remote(self) -> bool {
        self != Self::Local
    }

    /// As people call it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "a local file system",
            Self::Nfs => "NFS",
            Self::Smb => "SMB",
            Self::NineP => "9p",
            Self::Fuse => "FUSE",
            Self::Shared => "a shared file system",
        }
    }

    /// By `f_type` of statfs(2); numbers from `linux/magic.h` and the file systems' own headers.
    fn of_magic(magic: u64) -> Self {
        match magic & 0xffff_ffff {
            0x6969 => Self::Nfs,
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => Self::Smb,
            0x0102_1997 => Self::NineP,
            0x6573_5546 => Self::Fuse,
            0x5346_414f | 0x6b41_4653 | 0x00c3_6400 | 0x7461_636f | 0x0116_1970 | 0x0bd0_0bd0 | 0xaad7_aaea => {
                Self::Shared
            }
            _ => Self::Local,
        }
    }
}

/// The family of the file system that holds an open file or directory.
///
/// # Errors
/// Whatever the kernel says.
pub fn fs_type_of(file: impl AsFd) -> std::io::Result<FsType> {
    let stat = sys::fstatfs(file.as_fd())?;
    Ok(FsType::of_magic(u64::from_ne_bytes(stat.f_type.to_ne_bytes())))
}

/// The family of the file system that holds a path.
///
/// # Errors
/// When the path does not exist.
pub fn fs_type(path: &Path) -> Result<FsType> {
    let dir = super::Dir::open(path);
    match dir {
        Ok(dir) => fs_type_of(&dir).map_err(|e| LocalError::new("look at the file system of", path, e)),
        Err(e) if e.errno() == Some(libc::ENOTDIR) => {
            let file = fs::File::open(path).map_err(|e| LocalError::new("open", path, e))?;
            fs_type_of(&file).map_err(|e| LocalError::new("look at the file system of", path, e))
        }
        Err(e) => Err(e),
    }
}

/// Undoes the octal escapes of mountinfo (`\040` is a space).
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|d| first == b'\\' && d.iter().all(|c| (b'0'..=b'7').contains(c)));
        let value = octal.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        if let Some(value) = value {
            out.push(value);
            rest = after.get(3..).unwrap_or_default();
        } else {
            out.push(first);
            rest = after;
        }
    }
    out
}

/// `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&b| b == b' ');
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let id = text(fields.next()?).parse().ok()?;
    let _parent = fields.next()?;
    let device = text(fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let dev = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
    let root = path(fields.next()?);
    let point = path(fields.next()?);
    let options = text(fields.next()?);
    // Optional fields end with a dash alone.
    fields.find(|f| *f == b"-")?;
    let fs_type = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = text(fields.next()?);
    Some(Mount { id, dev, root, point, options, fs_type, source, super_options })
}

fn parse(bytes: &[u8]) -> Vec<Mount> {
    bytes.split(|&b| b == b'\n').filter_map(parse_line).collect()
}

/// All mounts of this process's namespace, in the order they were made.
///
/// # Errors
/// When /proc cannot be read.
pub fn mounts() -> Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    fs::read(path).map(|bytes| parse(&bytes)).map_err(|e| LocalError::new("read", path, e))
}

/// An absolute path with the symlinks of its parents resolved. The last component is not looked at: on a stale
/// mount that would fail.
fn locate(path: &Path) -> Result<PathBuf> {
    let fail = |e| LocalError::new("resolve", path, e);
    let absolute = std::path::absolute(path).map_err(fail)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent).map_err(fail)?.join(name)),
        _ => Ok(absolute),
    }
}

/// The mount that a path lies on: of those stacked on one place, the topmost.
///
/// # Errors
/// When a parent of the path does not exist.
pub fn mount_of(path: &Path) -> Result<Option<Mount>> {
    let resolved = fs::canonicalize(path).or_else(|_| locate(path).map_err(|e| std::io::Error::other(e.to_string())));
    let place = resolved.map_err(|e| LocalError::new("resolve", path, e))?;
    let mut best: Option<Mount> = None;
    for mount in mounts()? {
        if place.starts_with(&mount.point)
            && best.as_ref().is_none_or(|b| mount.point.as_os_str().len() >= b.point.as_os_str().len())
        {
            best = Some(mount);
        }
    }
    Ok(best)
}

/// The mounts whose mount point is exactly this path, the topmost last. Works on a stale mount.
///
/// # Errors
/// When a parent of the path does not exist.
pub fn mounted_at(path: &Path) -> Result<Vec<Mount>> {
    let place = locate(path)?;
    // A path that is itself a symlink to a mount point; on a stale mount this fails and the path stands.
    let resolved = fs::canonicalize(&place).unwrap_or(place);
    Ok(mounts()?.into_iter().filter(|m| m.point == resolved).collect())
}

/// Whether something is mounted exactly there.
///
/// # Errors
/// As [`mounted_at`].
pub fn is_mount_point(path: &Path) -> Result<bool> {
    Ok(!mounted_at(path)?.is_empty())
}

/// The highest ancestor of a path on the same device: below it, hard links work.
///
/// # Errors
/// When the path does not exist.
pub fn device_root(path: &Path) -> Result<PathBuf> {
    let fail = |e| LocalError::new("resolve", path, e);
    let mut root = fs::canonicalize(path).map_err(fail)?;
    // A bind mount has the same device but links do not cross it: stop at mount points too.
    let points: Vec<PathBuf> = mounts()?.into_iter().map(|m| m.point).collect();
    let dev = fs::metadata(&root).map_err(fail)?.dev();
    while !points.contains(&root) {
        let Some(parent) = root.parent() else { break };
        match fs::metadata(parent) {
            Ok(meta) if meta.dev() == dev => root = parent.to_owned(),
            _ => break,
        }
    }
    Ok(root)
}

/// A path as mountinfo and mount options need it, without commas, which options cannot hold.
#[must_use]
pub fn has_option_separator(path: &Path) -> bool {
    path.as_os_str().as_bytes().contains(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = br"36 35 98:0 /mnt1 /mnt\0402\134x rw,noatime master:1 shared:2 - fuse.ckptfs ck\040fs ro,user_id=7
garbage
40 35 0:5 / /dev rw - devtmpfs udev rw
";
        let mounts = parse(text);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].point, Path::new("/mnt 2\\x"));
        assert_eq!(mounts[0].root, Path::new("/mnt1"));
        assert_eq!((mounts[0].fs_type.as_str(), mounts[0].source.as_str()), ("fuse.ckptfs", "ck fs"));
        assert_eq!(mounts[0].super_option("user_id"), Some("7"));
        assert_eq!(mounts[0].super_option("user"), None);
        assert_eq!(mounts[0].dev, libc::makedev(98, 0));
        assert_eq!(mounts[1].fs_type, "devtmpfs");
    }

    #[test]
    fn the_machine_has_a_proc() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/self")).unwrap());
        assert_eq!(mount_of(Path::new("/proc/self/maps")).unwrap().unwrap().fs_type, "proc");
        assert_eq!(fs_type(Path::new("/proc")).unwrap(), FsType::Local);
        assert_eq!(device_root(Path::new("/proc/sys")).unwrap(), Path::new("/proc"));
    }

    #[test]
    fn families() {
        for (magic, family) in [
            (0x6969, FsType::Nfs),
            (0xff53_4d42, FsType::Smb),
            (0xffff_ffff_fe53_4d42, FsType::Smb),
            (0x0102_1997, FsType::NineP),
            (0x6573_5546, FsType::Fuse),
            (0xef53, FsType::Local),
        ] {
            assert_eq!(FsType::of_magic(magic), family, "{magic:x}");
        }
    }
}
