//! The kernel's requests, each to its handler. Whatever would change something is refused as a read-only ext4 refuses it; most of it the kernel
//! refuses itself, since the mount is read-only.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyBmap, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::attr;
use super::errno::errno;
use super::inner::{Inner, guarded};
use crate::metrics::{Operation, Timed};

/// Requests that may be under way at once for read-ahead and the like; the kernel's own default of 16 starves parallel
/// readers.
const MAX_BACKGROUND: u16 = 64;

/// What the kernel is asked to read ahead; it takes what its own limit allows.
const READAHEAD: u32 = 1 << 20;

/// Unit of `statfs`.
const BLOCK: u32 = 4096;

/// The adapter that fuser calls.
pub(super) struct Adapter(pub(super) Arc<Inner>);

impl Adapter {
    /// A request that is answered at once.
    fn run(&self, operation: Operation, ino: INodeNo, handler: impl FnOnce(&Arc<Inner>)) {
        self.wait(operation, ino, |inner, _timed| handler(inner));
    }

    /// One whose answer may have to wait: it takes its time along.
    fn wait(&self, operation: Operation, ino: INodeNo, handler: impl FnOnce(&Arc<Inner>, Timed)) {
        let timed = self.0.counters.begin(operation, ino.0);
        guarded(&self.0.counters, operation.name(), || handler(&self.0, timed));
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each alone: an older kernel lacks some, and all of them only make things faster.
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            if let Err(lacking) = config.add_capabilities(wanted) {
                log::info!("the kernel lacks {lacking:?}");
            }
        }
        if self.0.modes.enabled() {
            let stacked = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
            // Depth 1 keeps overlayfs possible on top of us.
            if !stacked || config.set_max_stack_depth(1).is_err() {
                self.0.modes.disable();
                log::warn!(
                    "this kernel has no FUSE passthrough (Linux 6.9 and later have): the daemon serves all files"
                );
            }
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        if let Err(most) = config.set_max_readahead(READAHEAD) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn destroy(&mut self) {
        self.0.notes.end();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.wait(Operation::Lookup, parent, |inner, timed| match name.to_str() {
            Some(name) => inner.lookup(parent.0, name, timed, reply),
            // All our names are ASCII.
            None => reply.error(Errno::ENOENT),
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.run(Operation::Getattr, ino, |inner| match inner.view.attr(ino.0) {
            Ok(found) => {
                reply.attr(&attr::attr_ttl(found.lasting), &inner.owners.attr(&found.attr, found.job.as_ref()));
            }
            Err(e) => reply.error(errno(&e)),
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.run(Operation::Readlink, ino, |inner| match inner.view.readlink(ino.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(e) => reply.error(errno(&e)),
        });
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.wait(Operation::Open, ino, |inner, timed| {
            if flags.acc_mode() == OpenAccMode::O_RDONLY {
                inner.open(ino.0, timed, reply);
            } else {
                reply.error(Errno::EROFS);
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.wait(Operation::Read, ino, |inner, timed| inner.read(fh.0, offset, size, timed, reply));
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.run(Operation::Release, ino, |inner| {
            inner.release(fh.0);
            reply.ok();
        });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.run(Operation::Opendir, ino, |inner| inner.opendir(ino.0, reply));
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.wait(Operation::Readdir, ino, |inner, timed| inner.readdir(fh.0, offset, timed, reply));
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.wait(Operation::Readdir, ino, |inner, timed| inner.readdirplus(fh.0, offset, timed, reply));
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.run(Operation::Release, ino, |inner| {
            inner.release(fh.0);
            reply.ok();
        });
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.run(Operation::Statfs, ino, |inner| {
            let space = inner.view.space();
            let unit = u64::from(BLOCK);
            let free = space.free / unit;
            let total = space.used.div_ceil(unit).saturating_add(free);
            reply.statfs(total, free, free, space.files, 0, BLOCK, 255, BLOCK);
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.run(Operation::Getxattr, ino, |inner| match name.to_str() {
            Some(name) => inner.getxattr(ino.0, name, size, reply),
            None => reply.error(Errno::NO_XATTR),
        });
    }

    fn listxattr(&self, _: &Request, _: INodeNo, size: u32, reply: ReplyXattr) {
        // Empty on purpose: copying tools would carry our attributes to places where they are not true.
        if size == 0 {
            reply.size(0);
        } else {
            reply.data(&[]);
        }
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // `default_permissions`: the kernel checks.
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        // The kernel then takes files for data throughout, which they are.
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // The kernel then takes files for always ready, as on every disk.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(Errno::EINVAL);
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        // Locks were not negotiated: the kernel keeps them itself.
        reply.error(Errno::ENOSYS);
    }

    fn setlk(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        _: u64,
        _: u64,
        _: i32,
        _: u32,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn rename(&self, _: &Request, _: INodeNo, _: &OsStr, _: INodeNo, _: &OsStr, _: RenameFlags, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EROFS);
    }

    fn create(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(&self, _: &Request, _: INodeNo, _: FileHandle, _: u64, _: u64, _: i32, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }
}
