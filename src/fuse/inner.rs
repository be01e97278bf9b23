//! What the requests share, and the ones among them that are more than a line: lookups, listings, opens, reads.

use std::cell::RefCell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fuser::{
    Errno, FileHandle, FopenFlags, INodeNo, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen,
    ReplyXattr,
};

use super::ahead::Reader;
use super::attr::{self, GENERATION, Owners};
use super::errno::{errno, is_news};
use super::handles::{Bytes, Handles, Open, OpenDirectory, OpenFile};
use super::notify::Notes;
use super::passthrough::{Decided, Modes};
use super::pool::{Pool, Refuse};
use crate::local::process::{self, Advice};
use crate::metrics::MountCounters;
use crate::metrics::Timed;
use crate::view::{Content, Found, Lasting, Names, Opened, View, ViewError};

/// How long a request for names or manifests may wait for the store: longer than the store itself waits for two requests in a row,
/// so that the last known listing is shown rather than an error.
const METADATA_PATIENCE: Duration = Duration::from_secs(90);

/// How long fetching a file may take for each MiB of it, beyond that: the store waits for a link of 1 MiB/s, and so do we.
const PATIENCE_PER_MIB: Duration = Duration::from_secs(1);

/// How long a read may wait for the store.
const READ_PATIENCE: Duration = Duration::from_secs(90);

/// Longest name that ext4 takes; beyond, the number is its ENAMETOOLONG.
const NAME_MAX: usize = 255;

thread_local! {
    /// Bytes of a read on their way to the kernel: one buffer per thread instead of an allocation per read.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One mount.
pub(super) struct Inner {
    pub(super) view: View,
    pub(super) owners: Owners,
    /// Threads that wait for names and manifests.
    pub(super) names: Pool,
    /// Threads that wait for files: others, so that `ls` never waits behind large fetches.
    pub(super) files: Pool,
    pub(super) handles: Handles,
    pub(super) modes: Modes<fuser::BackingId>,
    pub(super) notes: Notes,
    pub(super) counters: Arc<MountCounters>,
}

/// A listing on its way: with attributes or without.
trait Page: Refuse {
    /// Adds an entry; says whether there was no room left.
    fn push(&mut self, owners: &Owners, next: u64, item: &crate::view::Item<'_>) -> bool;
    /// Sends it.
    fn send(self);
    /// Whether the kernel remembers what the names stand for.
    const BINDS: bool;
}

impl Page for ReplyDirectoryPlus {
    const BINDS: bool = true;

    fn push(&mut self, owners: &Owners, next: u64, item: &crate::view::Item<'_>) -> bool {
        // One time for name and attributes: the shorter.
        let ttl = attr::entry_ttl(item.lasting);
        let shown = owners.attr(&item.attr, item.job.as_ref());
        self.add(INodeNo(item.attr.ino), next, item.name, &ttl, &shown, GENERATION)
    }

    fn send(self) {
        self.ok();
    }
}

impl Page for ReplyDirectory {
    const BINDS: bool = false;

    fn push(&mut self, _: &Owners, next: u64, item: &crate::view::Item<'_>) -> bool {
        self.add(INodeNo(item.attr.ino), next, attr::file_type(item.attr.kind), item.name)
    }

    fn send(self) {
        self.ok();
    }
}

/// Runs a handler; if it panics, the reply that it dropped has answered EIO, and nothing else is hurt.
pub(super) fn guarded(counters: &MountCounters, what: &'static str, handler: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(handler)).is_err() {
        counters.panics.inc();
        log::error!("the handler of {what} panicked; the caller gets an I/O error");
    }
}

fn refuse(what: &str, ino: u64, error: &ViewError, reply: impl Refuse) {
    if is_news(error) {
        log::warn!("{what} of inode {ino} failed: {error}");
    }
    reply.refuse(errno(error));
}

impl Inner {
    pub(super) fn lookup(self: &Arc<Self>, parent: u64, name: &str, timed: Timed, reply: ReplyEntry) {
        if name.len() > NAME_MAX {
            reply.error(Errno::ENAMETOOLONG);
        } else if let Some(known) = self.view.try_lookup(parent, name) {
            self.answer_lookup(parent, name, reply, known);
        } else {
            let (this, name) = (self.clone(), name.to_owned());
            let (view, asked) = (self.view.clone(), name.clone());
            self.names.run(
                METADATA_PATIENCE,
                reply,
                move || view.lookup(parent, &asked),
                move |reply, result| {
                    this.answer_lookup(parent, &name, reply, result);
                    drop(timed);
                },
            );
        }
    }

    fn answer_lookup(&self, parent: u64, name: &str, reply: ReplyEntry, result: Result<Found, ViewError>) {
        match result {
            Ok(found) => {
                let (attr_ttl, entry_ttl) = (attr::attr_ttl(found.lasting), attr::entry_ttl(found.lasting));
                let shown = self.owners.attr(&found.attr, found.job.as_ref());
                reply.entry_with_ttls(&attr_ttl, &entry_ttl, &shown, GENERATION);
                self.view.answered(parent, name, found.attr.ino);
            }
            // Below a checkpoint a name that is not there never will be; RocksDB asks for such ones at every open.
            Err(ViewError::NotFound) if self.view.directory(parent) == Ok(Lasting::All) => {
                reply.entry(&attr::entry_ttl(Lasting::All), &self.owners.all.absent(), GENERATION);
            }
            Err(e) => refuse("lookup", parent, &e, reply),
        }
    }

    pub(super) fn opendir(&self, ino: u64, reply: ReplyOpen) {
        match self.view.directory(ino) {
            Ok(lasting) => {
                let flags = match lasting {
                    Lasting::All => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
                    _ => FopenFlags::empty(),
                };
                let open = OpenDirectory { ino, lasting, names: std::sync::Mutex::new(None) };
                reply.opened(FileHandle(self.handles.insert(Open::Directory(Arc::new(open)))), flags);
            }
            Err(e) => refuse("opendir", ino, &e, reply),
        }
    }

    pub(super) fn readdir(self: &Arc<Self>, handle: u64, offset: u64, timed: Timed, reply: ReplyDirectory) {
        self.list(handle, offset, timed, reply);
    }

    pub(super) fn readdirplus(self: &Arc<Self>, handle: u64, offset: u64, timed: Timed, reply: ReplyDirectoryPlus) {
        self.list(handle, offset, timed, reply);
    }

    fn list<R: Page>(self: &Arc<Self>, handle: u64, offset: u64, timed: Timed, reply: R) {
        let Some(open) = self.handles.directory(handle) else { return reply.refuse(Errno::EBADF) };
        let kept = open.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // From the front again means: as it is now. Of what never changes, now is always.
        if let Some(names) = kept
            && (offset > 0 || open.lasting == Lasting::All)
        {
            return self.send_page(&names, offset, reply);
        }
        if let Some(known) = self.view.try_names(open.ino) {
            return self.answer_list(&open, offset, reply, known);
        }
        let (this, view) = (self.clone(), self.view.clone());
        let ino = open.ino;
        self.names.run(
            METADATA_PATIENCE,
            reply,
            move || view.names(ino),
            move |reply, result| {
                this.answer_list(&open, offset, reply, result);
                drop(timed);
            },
        );
    }

    fn answer_list<R: Page>(&self, open: &OpenDirectory, offset: u64, reply: R, result: Result<Names, ViewError>) {
        match result {
            Ok(names) => {
                let names = Arc::new(names);
                *open.names.lock().unwrap_or_else(PoisonError::into_inner) = Some(names.clone());
                self.send_page(&names, offset, reply);
            }
            Err(e) => refuse("readdir", open.ino, &e, reply),
        }
    }

    fn send_page<R: Page>(&self, names: &Names, offset: u64, mut reply: R) {
        let mut at = offset;
        let mut lazy = Vec::new();
        while let Some(item) = self.view.item(names, at) {
            at = at.saturating_add(1);
            if reply.push(&self.owners, at, &item) {
                break;
            }
            if R::BINDS && View::is_lazy(item.attr.ino) {
                lazy.push((item.name, item.attr.ino));
            }
        }
        reply.send();
        for (name, ino) in lazy {
            self.view.answered(names.directory(), name, ino);
        }
    }

    pub(super) fn open(self: &Arc<Self>, ino: u64, timed: Timed, reply: ReplyOpen) {
        if let Some(known) = self.view.try_open(ino) {
            return self.answer_open(ino, reply, known);
        }
        let size = self.view.attr(ino).map_or(0, |found| found.attr.size);
        let mib = u32::try_from(size >> 20).unwrap_or(u32::MAX);
        let patience = METADATA_PATIENCE.saturating_add(PATIENCE_PER_MIB.saturating_mul(mib));
        let (this, view) = (self.clone(), self.view.clone());
        self.files.run(
            patience,
            reply,
            move || view.open(ino),
            move |reply, result| {
                this.answer_open(ino, reply, result);
                drop(timed);
            },
        );
    }

    fn answer_open(&self, ino: u64, reply: ReplyOpen, result: Result<Opened, ViewError>) {
        let opened = match result {
            Ok(opened) => opened,
            Err(e) => return refuse("open", ino, &e, reply),
        };
        let size = self.view.attr(ino).map_or(0, |found| found.attr.size);
        let mut in_modes = false;
        let bytes = match opened.content {
            Content::Text(text) => Bytes::Text(text),
            Content::Served(file) => Bytes::File(file),
            Content::Parts(parts) => Bytes::Parts(Reader::new(parts)),
            Content::Local(file) => {
                in_modes = true;
                let register = |file: &std::fs::File| reply.open_backing(file);
                match self.modes.opened(ino, file, register, |e| self.no_passthrough(e)) {
                    Decided::Passthrough(backing) => Bytes::Passthrough(backing),
                    Decided::Served(file) => Bytes::File(file),
                }
            }
        };
        let (opened_as, backing) = match &bytes {
            Bytes::Passthrough(backing) => (&self.counters.opens_passthrough, Some(backing.clone())),
            Bytes::File(_) => (&self.counters.opens_fallback, None),
            Bytes::Parts(_) => (&self.counters.opens_lazy, None),
            Bytes::Text(_) => (&self.counters.opens_text, None),
        };
        opened_as.inc();
        let open = OpenFile { ino, size, bytes, in_modes, _hold: opened.hold };
        let handle = FileHandle(self.handles.insert(Open::File(Arc::new(open))));
        match backing {
            Some(backing) => {
                // Never KEEP_CACHE here: the kernel answers EIO to both together.
                reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &backing.id);
            }
            None => {
                reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
            }
        }
    }

    fn no_passthrough(&self, error: &std::io::Error) {
        self.counters.passthrough_refused.inc();
        if self.modes.disable() {
            log::warn!(
                "the kernel does not take files for passthrough ({error}): the daemon serves them, slower and only while \
                 it lives. Passthrough needs CAP_SYS_ADMIN and a cache that is not on overlayfs"
            );
        }
    }

    pub(super) fn read(self: &Arc<Self>, handle: u64, offset: u64, size: u32, timed: Timed, reply: ReplyData) {
        let Some(open) = self.handles.file(handle) else { return reply.error(Errno::EBADF) };
        if let Bytes::Passthrough(backing) = &open.bytes {
            // The kernel reads such a file itself, and asks us only for read-ahead into a cache that nobody reads. Do
            // what was meant, to the file behind, and have that other cache dropped.
            self.counters.hints.inc();
            process::fadvise(&backing.file, offset, u64::from(size), Advice::WillNeed);
            reply.error(Errno::EIO);
            self.notes.pages(open.ino);
            return;
        }
        if let Bytes::Parts(parts) = &open.bytes {
            return self.read_parts(&open, parts, (offset, size), timed, reply);
        }
        BUFFER.with_borrow_mut(|buffer| self.answer_read(open.ino, offset, reply, open.read(offset, size, buffer)));
    }

    /// Reads from a file that is not all local: what is there is answered at once, for the rest a worker waits.
    fn read_parts(
        self: &Arc<Self>,
        open: &Arc<OpenFile>,
        reader: &Reader,
        (offset, size): (u64, u32),
        timed: Timed,
        reply: ReplyData,
    ) {
        let there = open.size.saturating_sub(offset).min(u64::from(size));
        let length = usize::try_from(there).unwrap_or_default();
        if let Some(ahead) = reader.read(offset, there) {
            reader.parts.ahead(ahead.start, ahead.end - ahead.start);
        }
        let waits = BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(length, 0);
            let Some(read) = reader.parts.try_read(offset, buffer) else { return Some(reply) };
            self.answer_read(open.ino, offset, reply, read.map(|()| buffer.as_slice()));
            None
        });
        let Some(reply) = waits else { return };
        self.counters.lazy_reads.inc();
        let (this, open) = (self.clone(), open.clone());
        let (ino, parts) = (open.ino, reader.parts.clone());
        self.files.run(
            READ_PATIENCE,
            reply,
            move || {
                // Keeps it open until the answer is there.
                let _open = open;
                let mut buffer = vec![0; length];
                parts.read(offset, &mut buffer).map(|()| buffer)
            },
            move |reply, result| {
                this.answer_read(ino, offset, reply, result.as_deref());
                drop(timed);
            },
        );
    }

    fn answer_read<E: Display>(&self, ino: u64, offset: u64, reply: ReplyData, result: Result<&[u8], E>) {
        match result {
            Ok(bytes) => {
                self.counters.reads.inc();
                self.counters.read_bytes.add(bytes.len() as u64);
                reply.data(bytes);
            }
            Err(e) => {
                log::warn!("read of inode {ino} at {offset} failed: {e}");
                reply.error(Errno::EIO);
            }
        }
    }

    pub(super) fn release(&self, handle: u64) {
        if let Some(Open::File(file)) = self.handles.remove(handle)
            && file.in_modes
        {
            self.modes.closed(file.ino);
        }
    }

    pub(super) fn getxattr(&self, ino: u64, name: &str, size: u32, reply: ReplyXattr) {
        match self.view.xattr(ino, name) {
            Ok(value) => match u32::try_from(value.len()) {
                Ok(length) if size == 0 => reply.size(length),
                Ok(length) if length <= size => reply.data(&value),
                _ => reply.error(Errno::ERANGE),
            },
            Err(e) => refuse("getxattr", ino, &e, reply),
        }
    }
}
