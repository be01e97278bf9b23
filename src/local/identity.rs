//! What a file is, and the record of what it holds: a digest in the xattr `user.ckptfs.id` of its inode, believed only
//! while everything that was true when it was hashed still is.
//!
//! A copy has another inode number, an in-place write another mtime, a truncation another size; a hard link is the
//! same inode and keeps its record. Binary and short (49 bytes), so that it fits into a 256-byte ext4 inode.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::dir::FileKind;
use super::{sys, xattr};
use crate::types::{Digest, Hasher};

/// The attribute that holds the record.
pub const ATTRIBUTE: &str = "user.ckptfs.id";

const VERSION: u8 = 1;
const CHECK_LEN: usize = 16;
const RECORD_LEN: usize = 1 + 32 + CHECK_LEN;
const DOMAIN: &[u8] = b"ckptfs inode record 1\0";

/// Seconds since 1970 and nanoseconds.
pub type Time = (i64, u32);

/// A file's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// Device of the file system.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Last change of the bytes.
    pub mtime: Time,
    /// When the inode was made, where the file system knows.
    pub btime: Option<Time>,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permissions.
    pub mode: u32,
    /// Blocks of 512 bytes on the disk.
    pub blocks: u64,
}

impl From<&libc::statx> for FileStat {
    fn from(s: &libc::statx) -> Self {
        let has_btime = s.stx_mask & libc::STATX_BTIME != 0;
        Self {
            dev: libc::makedev(s.stx_dev_major, s.stx_dev_minor),
            ino: s.stx_ino,
            size: s.stx_size,
            mtime: (s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec),
            btime: has_btime.then_some((s.stx_btime.tv_sec, s.stx_btime.tv_nsec)),
            nlink: s.stx_nlink,
            uid: s.stx_uid,
            gid: s.stx_gid,
            mode: u32::from(s.stx_mode),
            blocks: s.stx_blocks,
        }
    }
}

impl FileStat {
    /// Bytes that it takes on the disk.
    #[must_use]
    pub fn on_disk(&self) -> u64 {
        self.blocks.saturating_mul(512)
    }

    /// Attributes of an open file.
    ///
    /// # Errors
    /// Whatever the kernel says.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        sys::statx(file.as_fd(), c"").map(|s| Self::from(&s))
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::of_mode(self.mode)
    }

    /// The same inode.
    #[must_use]
    pub fn same_inode(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// The same inode, and its bytes did not change between the two looks.
    #[must_use]
    pub fn unchanged(&self, other: &Self) -> bool {
        self.same_inode(other) && (self.size, self.mtime, self.btime) == (other.size, other.mtime, other.btime)
    }
}

fn check(digest: &Digest, stat: &FileStat) -> Option<[u8; CHECK_LEN]> {
    let btime = stat.btime?;
    let mut hasher = Hasher::new();
    hasher.update(DOMAIN).update(digest.as_bytes());
    hasher.update(&stat.size.to_le_bytes()).update(&stat.ino.to_le_bytes());
    for (seconds, nanos) in [stat.mtime, btime] {
        hasher.update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
    }
    hasher.finish().as_bytes().first_chunk().copied()
}

/// Errors that mean "this place keeps no records", not "something broke".
fn keeps_none(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(
            libc::EOPNOTSUPP
                | libc::EPERM
                | libc::EACCES
                | libc::EROFS
                | libc::ENOSPC
                | libc::EDQUOT
                | libc::E2BIG
                | libc::ERANGE
                | libc::ENOSYS
        )
    )
}

/// Records that the file, which was as `before` says when its hashing began, holds `digest`. False: nothing was
/// recorded, because it changed meanwhile or because the file system keeps no such records.
///
/// # Errors
/// Only when the disk or the kernel fails in earnest.
pub fn record_since(file: &File, digest: &Digest, before: &FileStat) -> io::Result<bool> {
    let now = FileStat::of(file)?;
    if now.kind() != FileKind::File || !now.unchanged(before) {
        return Ok(false);
    }
    let Some(check) = check(digest, &now) else { return Ok(false) };
    let mut value = Vec::with_capacity(RECORD_LEN);
    value.push(VERSION);
    value.extend_from_slice(digest.as_bytes());
    value.extend_from_slice(&check);
    match xattr::set(file, ATTRIBUTE, &value) {
        Ok(()) => Ok(true),
        Err(e) if keeps_none(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Records that the file holds `digest`, as it is now. Only for a file that nobody else can have changed since it
/// was hashed, such as one that was just written and has no name yet; otherwise [`record_since`].
///
/// # Errors
/// As [`record_since`].
pub fn record(file: &File, digest: &Digest) -> io::Result<bool> {
    record_since(file, digest, &FileStat::of(file)?)
}

/// The recorded digest, if the inode is still what was hashed. A damaged, foreign or outdated record is none.
///
/// # Errors
/// Only when the disk or the kernel fails in earnest.
pub fn recorded(file: &File) -> io::Result<Option<Digest>> {
    Ok(recorded_of(file)?.1)
}

/// A file's attributes, and the digest as [`recorded`] gives it.
///
/// # Errors
/// As [`recorded`].
pub fn recorded_of(file: &File) -> io::Result<(FileStat, Option<Digest>)> {
    let value = match xattr::get(file, ATTRIBUTE) {
        Ok(value) => value,
        Err(e) if keeps_none(&e) => None,
        Err(e) => return Err(e),
    };
    // After the record: what changes in between outdates it.
    let stat = FileStat::of(file)?;
    let value = value.filter(|v| v.len() == RECORD_LEN && v.first() == Some(&VERSION) && stat.kind() == FileKind::File);
    let digest = value.as_deref().and_then(|value| {
        let digest = Digest::from_bytes(*value.get(1..33)?.first_chunk()?);
        (check(&digest, &stat)?[..] == *value.get(33..)?).then_some(digest)
    });
    Ok((stat, digest))
}

/// Drops the record.
///
/// # Errors
/// Only when the disk or the kernel fails in earnest.
pub fn forget(file: &File) -> io::Result<()> {
    match xattr::remove(file, ATTRIBUTE) {
        Err(e) if !keeps_none(&e) => Err(e),
        _ => Ok(()),
    }
}

/// Hashes a file from its first byte to its end and says how long it was.
///
/// # Errors
/// When it cannot be read.
pub fn hash(file: &File) -> io::Result<(Digest, u64)> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0; 256 << 10];
    let mut offset = 0_u64;
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => return Ok((hasher.finish(), offset)),
            Ok(n) => {
                hasher.update(buffer.get(..n).unwrap_or_default());
                offset = offset.saturating_add(n as u64);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The digest of an immutable file: from its record, else hashed now and recorded.
///
/// # Errors
/// When it cannot be read, or changed while it was read.
pub fn digest(file: &File) -> io::Result<Digest> {
    if let Some(digest) = recorded(file)? {
        return Ok(digest);
    }
    let before = FileStat::of(file)?;
    let (digest, length) = hash(file)?;
    if length != before.size || !FileStat::of(file)?.unchanged(&before) {
        return Err(io::Error::other("the file changed while it was hashed"));
    }
    record_since(file, &digest, &before)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::Path;

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// A recorded file; nothing where the file system of the temporary directory keeps no records (an old tmpfs).
    fn recorded_file(bytes: &[u8]) -> (tempfile::TempDir, std::path::PathBuf, Digest) {
        // The target directory lies on a disk; /tmp may be a tmpfs.
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = temp.path().join("a.sst");
        std::fs::write(&path, bytes).unwrap();
        let digest = digest(&open(&path)).unwrap();
        assert_eq!(digest, Digest::of(bytes));
        assert_eq!(recorded(&open(&path)).unwrap(), Some(digest), "these tests need user xattrs and birth times");
        (temp, path, digest)
    }

    #[test]
    fn hard_links_and_renames_keep_the_record() {
        let (temp, path, digest) = recorded_file(b"hello");
        let link = temp.path().join("b.sst");
        std::fs::hard_link(&path, &link).unwrap();
        std::fs::rename(&path, temp.path().join("c.sst")).unwrap();
        assert_eq!(recorded(&open(&link)).unwrap(), Some(digest));
        std::fs::set_permissions(&link, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
        assert_eq!(recorded(&File::open(&link).unwrap()).unwrap(), Some(digest));
    }

    #[test]
    fn a_copy_with_its_attributes_is_another_file() {
        let (temp, path, _) = recorded_file(b"hello");
        let copy = temp.path().join("b.sst");
        std::fs::copy(&path, &copy).unwrap();
        let value = xattr::get(open(&path), ATTRIBUTE).unwrap().unwrap();
        assert_eq!(value.len(), 49);
        xattr::set(open(&copy), ATTRIBUTE, &value).unwrap();
        let times = std::fs::FileTimes::new().set_modified(std::fs::metadata(&path).unwrap().modified().unwrap());
        open(&copy).set_times(times).unwrap();
        assert_eq!(recorded(&open(&copy)).unwrap(), None);
    }

    #[test]
    fn writes_and_truncation_end_it() {
        let (_temp, path, digest) = recorded_file(b"hello");
        // Even a write that follows at once and keeps the length.
        open(&path).write_all(b"HELLO").unwrap();
        assert_eq!(recorded(&open(&path)).unwrap(), None);
        assert_ne!(super::digest(&open(&path)).unwrap(), digest);
        open(&path).set_len(4).unwrap();
        assert_eq!(recorded(&open(&path)).unwrap(), None);
    }

    #[test]
    fn what_changed_since_it_was_hashed_is_not_recorded() {
        let (_temp, path, digest) = recorded_file(b"hello");
        let file = open(&path);
        let before = FileStat::of(&file).unwrap();
        open(&path).write_all(b"HELLO").unwrap();
        assert!(!record_since(&file, &digest, &before).unwrap());
        assert_eq!(recorded(&file).unwrap(), None);
    }

    #[test]
    fn every_bit_of_the_record_counts() {
        let (_temp, path, digest) = recorded_file(b"hello");
        let file = open(&path);
        let value = xattr::get(&file, ATTRIBUTE).unwrap().unwrap();
        for bit in 0..value.len() * 8 {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            xattr::set(&file, ATTRIBUTE, &bad).unwrap();
            assert_eq!(recorded(&file).unwrap(), None, "bit {bit}");
        }
        for bad in [&value[..48], &[&value[..], &[0]].concat(), &[]] {
            xattr::set(&file, ATTRIBUTE, bad).unwrap();
            assert_eq!(recorded(&file).unwrap(), None);
        }
        xattr::set(&file, ATTRIBUTE, &value).unwrap();
        assert_eq!(recorded(&file).unwrap(), Some(digest));
        forget(&file).unwrap();
        forget(&file).unwrap();
        assert_eq!(recorded(&file).unwrap(), None);
    }

    #[test]
    fn the_record_costs_no_block() {
        let temp = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let path = temp.path().join("a.sst");
        std::fs::write(&path, vec![7; 8192]).unwrap();
        open(&path).sync_all().unwrap();
        let before = FileStat::of(open(&path)).unwrap();
        assert!(before.btime.is_some() && before.blocks > 0);
        assert!(record(&open(&path), &Digest::of(b"x")).unwrap());
        open(&path).sync_all().unwrap();
        assert_eq!(FileStat::of(open(&path)).unwrap().blocks, before.blocks);
    }

    #[test]
    fn places_without_records_say_no() {
        // procfs has neither user attributes nor birth times.
        let file = File::open("/proc/self/status").unwrap();
        assert!(!record(&file, &Digest::of(b"x")).unwrap());
        assert_eq!(recorded(&file).unwrap(), None);
    }

    #[test]
    fn attributes_agree_with_the_library() {
        use std::os::unix::fs::MetadataExt;
        let file = File::open("/proc/self/exe").unwrap();
        let (stat, meta) = (FileStat::of(&file).unwrap(), file.metadata().unwrap());
        assert_eq!((stat.dev, stat.ino, stat.size), (meta.dev(), meta.ino(), meta.size()));
        assert_eq!((stat.mode, stat.uid, stat.blocks), (meta.mode(), meta.uid(), meta.blocks()));
    }
}
