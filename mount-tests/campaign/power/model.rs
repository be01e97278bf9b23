//! A file system as it was asked to be: what is in the page cache now, and for every change whether the disk must have it.
//!
//! A change is durable from the end of an fsync on that began after the change had ended: of a file for its bytes and its size (fdatasync),
//! and its attributes (fsync); of a directory for its entries. Nothing else makes anything durable, and an fsync of a file gives it no name.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::trace::{Call, bytes};

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Link(PathBuf),
}

/// A change of a file.
#[derive(Debug, Clone)]
pub enum Change {
    Write(u64, Vec<u8>),
    Size(u64),
    Hole(u64, u64),
    /// An attribute, and the size and how many changes of bytes the file had when it was set.
    Attribute(String, Option<Vec<u8>>, u64, usize),
}

/// When something was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub begun: u64,
    pub ended: u64,
}

#[derive(Debug)]
pub struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub changes: Vec<(Span, Change)>,
    /// Its fsyncs, and whether they gave its attributes too.
    pub syncs: Vec<(Span, bool)>,
    /// Changes of a directory's entries; those of one number are of one rename.
    pub entries: Vec<(Span, u64, OsString, Option<usize>)>,
    /// How it looks to the living.
    pub live: Vec<u8>,
    pub names: BTreeMap<OsString, usize>,
    pub attributes: BTreeMap<String, Vec<u8>>,
}

impl Inode {
    fn new(kind: Kind, mode: u32) -> Self {
        Self {
            kind,
            mode,
            changes: Vec::new(),
            syncs: Vec::new(),
            entries: Vec::new(),
            live: Vec::new(),
            names: BTreeMap::new(),
            attributes: BTreeMap::new(),
        }
    }

    /// Whether a change is on the disk for certain when the power goes.
    pub fn durable(&self, change: Span, attribute: bool, cut: u64) -> bool {
        self.syncs.iter().any(|(s, full)| change.ended < s.begun && s.ended < cut && (*full || !attribute))
    }
}

/// Makes a change to bytes.
pub fn apply(bytes: &mut Vec<u8>, change: &Change) {
    let at = |n: u64| usize::try_from(n).unwrap();
    match change {
        Change::Write(offset, data) => {
            let end = at(*offset) + data.len();
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at(*offset)..end].copy_from_slice(data);
        }
        Change::Size(size) => bytes.resize(at(*size), 0),
        Change::Hole(offset, length) => {
            let end = at(offset + length).min(bytes.len());
            if let Some(hole) = bytes.get_mut(at(*offset)..end) {
                hole.fill(0);
            }
        }
        Change::Attribute(..) => {}
    }
}

/// An open file: its inode and where the next write goes.
#[derive(Debug, Clone)]
struct Open(usize, std::rc::Rc<std::cell::Cell<u64>>);

/// What a call came to.
enum Done {
    Yes,
    /// What it names is not there yet: another thread's call, which ended later, made it.
    Later,
}

pub struct Model {
    pub root: PathBuf,
    pub inodes: Vec<Inode>,
    /// Changes that are no rename have a number of their own too.
    next: u64,
    /// How many calls of each name were taken in.
    pub seen: BTreeMap<String, u64>,
}

impl Model {
    /// What lies below a directory now. All of it is on the disk, but for the bytes of files below those named `loose`: their writer has not
    /// synced them.
    pub fn of(root: &Path, loose: &str) -> Self {
        let mut model = Self { root: root.to_owned(), inodes: Vec::new(), next: 0, seen: BTreeMap::new() };
        let mut known = HashMap::new();
        model.load(root, false, loose, &mut known);
        model
    }

    fn load(&mut self, path: &Path, is_loose: bool, loose: &str, known: &mut HashMap<u64, usize>) -> usize {
        let meta = path.symlink_metadata().unwrap();
        if let Some(at) = known.get(&meta.ino()) {
            return *at;
        }
        let kind = if meta.is_dir() {
            Kind::Dir
        } else if meta.is_symlink() {
            Kind::Link(fs::read_link(path).unwrap())
        } else {
            Kind::File
        };
        let at = self.add(kind.clone(), meta.mode() & 0o7777);
        known.insert(meta.ino(), at);
        let before = Span { begun: 0, ended: 0 };
        match kind {
            Kind::Dir => {
                for entry in fs::read_dir(path).unwrap() {
                    let entry = entry.unwrap();
                    let name = entry.file_name();
                    // What is mounted is no disk.
                    if at == 0 && name.to_string_lossy().starts_with("mnt") {
                        continue;
                    }
                    let is_loose = is_loose || (at == 0 && name.to_string_lossy().starts_with(loose));
                    let below = self.load(&entry.path(), is_loose, loose, known);
                    self.entry(at, before, &name, Some(below));
                }
            }
            Kind::File => {
                let data = fs::read(path).unwrap();
                self.change(at, before, Change::Write(0, data));
                for (name, value) in attributes(path) {
                    self.change(at, before, Change::Attribute(name, Some(value), meta.len(), 1));
                }
            }
            Kind::Link(_) => {}
        }
        // A file with other names is in the cache too: what linked it there has synced it.
        if !is_loose || self.inodes[at].kind != Kind::File || meta.nlink() > 1 {
            self.inodes[at].syncs.push((Span { begun: 1, ended: 1 }, true));
        }
        at
    }

    fn add(&mut self, kind: Kind, mode: u32) -> usize {
        self.inodes.push(Inode::new(kind, mode));
        self.inodes.len() - 1
    }

    fn change(&mut self, at: usize, span: Span, change: Change) {
        let inode = &mut self.inodes[at];
        apply(&mut inode.live, &change);
        if let Change::Attribute(name, value, ..) = &change {
            match value {
                Some(value) => inode.attributes.insert(name.clone(), value.clone()),
                None => inode.attributes.remove(name),
            };
        }
        inode.changes.push((span, change));
    }

    /// An attribute that is set now: it may vouch for the bytes that are there now.
    fn attribute(&mut self, at: usize, span: Span, name: String, value: Option<Vec<u8>>) {
        let inode = &self.inodes[at];
        let changed = inode.changes.iter().filter(|(_, c)| !matches!(c, Change::Attribute(..))).count();
        let size = inode.live.len() as u64;
        self.change(at, span, Change::Attribute(name, value, size, changed));
    }

    fn entry(&mut self, dir: usize, span: Span, name: &OsStr, to: Option<usize>) {
        self.next += 1;
        self.entry_of(dir, span, self.next, name, to);
    }

    fn entry_of(&mut self, dir: usize, span: Span, number: u64, name: &OsStr, to: Option<usize>) {
        let inode = &mut self.inodes[dir];
        match to {
            Some(to) => inode.names.insert(name.to_owned(), to),
            None => inode.names.remove(name),
        };
        inode.entries.push((span, number, name.to_owned(), to));
    }

    /// The inode behind a path from a directory, following no last symlink. Nothing: it is none of ours, or not there.
    fn find(&self, dir: Option<usize>, path: &Path) -> Option<usize> {
        let (mut at, path) = match path.strip_prefix(&self.root) {
            Ok(below) => (0, below),
            Err(_) if path.is_absolute() => return None,
            Err(_) => (dir?, path),
        };
        for part in path.components() {
            match part {
                Component::Normal(name) => at = *self.inodes[at].names.get(name)?,
                Component::CurDir => {}
                _ => return None,
            }
        }
        Some(at)
    }
}

/// The user attributes of a file.
pub fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let name = ckptfs::local::identity::ATTRIBUTE;
    let value = ckptfs::local::xattr::lget(path, name).unwrap();
    value.map(|value| (name.to_owned(), value)).into_iter().collect()
}

/// A process whose calls are taken in.
pub struct Process {
    open: HashMap<i64, Open>,
    cwd: PathBuf,
}

impl Process {
    pub fn new(cwd: &Path) -> Self {
        Self { open: HashMap::new(), cwd: cwd.to_owned() }
    }

    /// Takes in all that a process did.
    pub fn take(mut self, model: &mut Model, calls: &[Call]) {
        // A descriptor is free from the beginning of its close on: who gets it next may have ended before.
        let mut order: Vec<&Call> = calls.iter().collect();
        order.sort_by_key(|c| if c.name == "close" { c.begun } else { c.ended });
        let mut waiting: Vec<&Call> = Vec::new();
        for call in order {
            if matches!(self.one(model, call), Done::Later) {
                waiting.push(call);
                continue;
            }
            let mut again = true;
            while again && !waiting.is_empty() {
                let before = waiting.len();
                waiting.retain(|call| matches!(self.one(model, call), Done::Later));
                again = waiting.len() < before;
            }
        }
        // What still waits opened something outside of the model's reach, or removed what is no longer there.
        for call in waiting {
            assert!(call.name.starts_with("open"), "what it names was never there: {call:.300?}");
        }
    }

    fn file(&self, arg: &str) -> Option<&Open> {
        self.open.get(&arg.parse().ok()?)
    }

    /// A directory and a name in it.
    fn place(&self, model: &Model, dir: &str, path: &str) -> Option<(usize, OsString)> {
        let path = PathBuf::from(OsString::from_vec(bytes(path)));
        let (above, name) = (path.parent().unwrap_or(Path::new("")), path.file_name()?.to_owned());
        Some((self.resolve(model, dir, above)?, name))
    }

    fn resolve(&self, model: &Model, dir: &str, path: &Path) -> Option<usize> {
        if dir == "AT_FDCWD" {
            model.find(None, &self.cwd.join(path))
        } else {
            model.find(self.file(dir).map(|o| o.0), path)
        }
    }

    fn ours(&self, model: &Model, dir: &str, path: &str) -> bool {
        let path = PathBuf::from(OsString::from_vec(bytes(path)));
        if path.is_absolute() || dir == "AT_FDCWD" {
            self.cwd.join(path).starts_with(&model.root)
        } else {
            self.file(dir).is_some()
        }
    }

    fn one(&mut self, model: &mut Model, call: &Call) -> Done {
        if call.result < 0 {
            return Done::Yes;
        }
        let span = Span { begun: call.begun, ended: call.ended };
        let a = |n: usize| call.args.get(n).map_or("", String::as_str);
        let number = |n: usize| a(n).parse::<u64>().unwrap_or_else(|_| panic!("argument {n} of {call:.300?}"));
        let mut counted = true;
        match call.name.as_str() {
            "close" => {
                self.open.remove(&a(0).parse().unwrap_or(-1));
                counted = false;
            }
            "openat" | "openat2" | "open" => {
                let (dir, path, flags, mode) = match call.name.as_str() {
                    "open" => ("AT_FDCWD", a(0), a(1), a(2)),
                    _ => (a(0), a(1), a(2), a(3)),
                };
                if !self.ours(model, dir, path) {
                    return Done::Yes;
                }
                let path_of = PathBuf::from(OsString::from_vec(bytes(path)));
                let mode = u32::from_str_radix(mode, 8).unwrap_or(0o600);
                let at = if flags.contains("O_TMPFILE") {
                    model.add(Kind::File, mode)
                } else if let Some(at) = self.resolve(model, dir, &path_of) {
                    if flags.contains("O_TRUNC") {
                        model.change(at, span, Change::Size(0));
                    }
                    at
                } else if flags.contains("O_CREAT") {
                    let Some((above, name)) = self.place(model, dir, path) else { return Done::Later };
                    let at = model.add(Kind::File, mode);
                    model.entry(above, span, &name, Some(at));
                    at
                } else {
                    // Below a mount of ours, or made by a call that ends later.
                    return Done::Later;
                };
                let position = if flags.contains("O_APPEND") { u64::MAX } else { 0 };
                self.open.insert(call.result, Open(at, std::rc::Rc::new(position.into())));
                counted = flags.contains("O_CREAT") || flags.contains("O_TMPFILE");
            }
            "dup" | "dup2" | "dup3" => self.copy(a(0), call.result),
            "fcntl" => {
                if a(1).starts_with("F_DUPFD") {
                    self.copy(a(0), call.result);
                }
                counted = false;
            }
            "lseek" => {
                if let Some(open) = self.file(a(0))
                    && !a(2).starts_with("SEEK_DATA")
                    && !a(2).starts_with("SEEK_HOLE")
                {
                    open.1.set(u64::try_from(call.result).unwrap());
                }
                counted = false;
            }
            "write" | "writev" => {
                let Some(open) = self.file(a(0)).cloned() else { return Done::Yes };
                let mut data = if call.name == "write" { bytes(a(1)) } else { vectors(a(1)) };
                data.truncate(usize::try_from(call.result).unwrap());
                let end = model.inodes[open.0].live.len() as u64;
                let at = if open.1.get() == u64::MAX { end } else { open.1.get() };
                if open.1.get() != u64::MAX {
                    open.1.set(at + data.len() as u64);
                }
                model.change(open.0, span, Change::Write(at, data));
            }
            "pwrite64" | "pwritev" | "pwritev2" => {
                let Some(open) = self.file(a(0)).cloned() else { return Done::Yes };
                let mut data = if call.name == "pwrite64" { bytes(a(1)) } else { vectors(a(1)) };
                data.truncate(usize::try_from(call.result).unwrap());
                model.change(open.0, span, Change::Write(number(3), data));
            }
            "copy_file_range" => self.copied(model, span, [a(0), a(1), a(2), a(3)], call.result),
            "sendfile" => self.copied(model, span, [a(1), a(2), a(0), "NULL"], call.result),
            "ioctl" => {
                if a(1).contains("FICLONE") {
                    let (from, to) = (self.file(a(2)).cloned().unwrap(), self.file(a(0)).cloned().unwrap());
                    let data = model.inodes[from.0].live.clone();
                    model.change(to.0, span, Change::Size(0));
                    model.change(to.0, span, Change::Write(0, data));
                } else {
                    counted = false;
                }
            }
            "ftruncate" => {
                let Some(open) = self.file(a(0)).cloned() else { return Done::Yes };
                model.change(open.0, span, Change::Size(number(1)));
            }
            "fallocate" => {
                let Some(open) = self.file(a(0)).cloned() else { return Done::Yes };
                if a(1).contains("PUNCH_HOLE") {
                    model.change(open.0, span, Change::Hole(number(2), number(3)));
                } else {
                    assert!(a(1).contains("KEEP_SIZE"), "{call:.300?}");
                }
            }
            "linkat" | "link" => return self.link(model, call, span),
            "renameat" | "renameat2" | "rename" => {
                let (from, to) = match call.name.as_str() {
                    "rename" => (("AT_FDCWD", a(0)), ("AT_FDCWD", a(1))),
                    _ => ((a(0), a(1)), (a(2), a(3))),
                };
                if !self.ours(model, from.0, from.1) && !self.ours(model, to.0, to.1) {
                    return Done::Yes;
                }
                let (Some(from), Some(to)) = (self.place(model, from.0, from.1), self.place(model, to.0, to.1)) else {
                    return Done::Later;
                };
                let Some(inode) = model.inodes[from.0].names.get(&from.1).copied() else { return Done::Later };
                let other = model.inodes[to.0].names.get(&to.1).copied();
                model.next += 1;
                let number = model.next;
                let exchanged = a(4).contains("RENAME_EXCHANGE");
                model.entry_of(to.0, span, number, &to.1, Some(inode));
                model.entry_of(from.0, span, number, &from.1, other.filter(|_| exchanged));
            }
            "unlinkat" | "unlink" | "rmdir" => {
                let (dir, path) = if call.name == "unlinkat" { (a(0), a(1)) } else { ("AT_FDCWD", a(0)) };
                if !self.ours(model, dir, path) {
                    return Done::Yes;
                }
                let Some((above, name)) = self.place(model, dir, path) else { return Done::Later };
                if !model.inodes[above].names.contains_key(&name) {
                    return Done::Later;
                }
                model.entry(above, span, &name, None);
            }
            "mkdirat" | "mkdir" | "symlinkat" | "symlink" => {
                let (dir, path, kind) = match call.name.as_str() {
                    "mkdir" => ("AT_FDCWD", a(0), Kind::Dir),
                    "mkdirat" => (a(0), a(1), Kind::Dir),
                    "symlink" => ("AT_FDCWD", a(1), Kind::Link(OsString::from_vec(bytes(a(0))).into())),
                    _ => (a(1), a(2), Kind::Link(OsString::from_vec(bytes(a(0))).into())),
                };
                if !self.ours(model, dir, path) {
                    return Done::Yes;
                }
                let Some((above, name)) = self.place(model, dir, path) else { return Done::Later };
                let at = model.add(kind, 0o755);
                model.entry(above, span, &name, Some(at));
            }
            "fsetxattr" | "fremovexattr" => {
                let Some(open) = self.file(a(0)).cloned() else { return Done::Yes };
                let name = String::from_utf8(bytes(a(1))).unwrap();
                let value = (call.name == "fsetxattr").then(|| bytes(a(2)));
                model.attribute(open.0, span, name, value);
            }
            "fsync" | "fdatasync" => {
                let Some(open) = self.file(a(0)).cloned() else { return Done::Yes };
                model.inodes[open.0].syncs.push((span, call.name == "fsync"));
            }
            "syncfs" | "sync" => model.inodes.iter_mut().for_each(|i| i.syncs.push((span, true))),
            "mmap" => {
                let shared = a(3).contains("MAP_SHARED") && a(2).contains("PROT_WRITE");
                assert!(!shared || self.file(a(4)).is_none(), "a file is written by memory: {call:.300?}");
                counted = false;
            }
            // Asks the disk to begin, and promises nothing.
            "sync_file_range" => {}
            other => {
                assert!(self.file(a(0)).is_none(), "no model of {other}");
                assert!(!other.starts_with("io_uring") && !other.contains("xattr"), "no model of {other}");
                counted = false;
            }
        }
        if counted {
            *model.seen.entry(call.name.clone()).or_default() += 1;
        }
        Done::Yes
    }

    fn copy(&mut self, from: &str, to: i64) {
        match self.file(from).cloned() {
            Some(open) => self.open.insert(to, open),
            None => self.open.remove(&to),
        };
    }

    fn copied(&self, model: &mut Model, span: Span, [from, from_at, to, to_at]: [&str; 4], length: i64) {
        let Some(to) = self.file(to).cloned() else { return };
        let length = usize::try_from(length).unwrap();
        assert!(to_at == "NULL", "an offset of its own: {to_at}");
        let Some(from) = self.file(from).cloned() else {
            assert_eq!(length, 0, "bytes come from a file that the model does not have");
            return;
        };
        let begin = match from_at.trim_matches(['[', ']']).split(' ').next() {
            Some(n) if from_at != "NULL" => n.parse().unwrap(),
            _ => {
                let at = from.1.get();
                from.1.set(at + length as u64);
                at
            }
        };
        let data = model.inodes[from.0].live[usize::try_from(begin).unwrap()..][..length].to_vec();
        let at = to.1.get();
        to.1.set(at + length as u64);
        model.change(to.0, span, Change::Write(at, data));
    }

    fn link(&mut self, model: &mut Model, call: &Call, span: Span) -> Done {
        let a = |n: usize| call.args.get(n).map_or("", String::as_str);
        let (dir, from, to_dir, to) = match call.name.as_str() {
            "link" => ("AT_FDCWD", a(0), "AT_FDCWD", a(1)),
            _ => (a(0), a(1), a(2), a(3)),
        };
        if !self.ours(model, to_dir, to) {
            return Done::Yes;
        }
        let source = bytes(from);
        let inode = match source.strip_prefix(b"/proc/self/fd/") {
            Some(fd) => self.file(std::str::from_utf8(fd).unwrap()).map(|o| o.0),
            None if source.is_empty() => self.file(dir).map(|o| o.0),
            None => self.resolve(model, dir, Path::new(OsStr::from_bytes(&source))),
        };
        let (Some(inode), Some((above, name))) = (inode, self.place(model, to_dir, to)) else { return Done::Later };
        model.entry(above, span, &name, Some(inode));
        *model.seen.entry(call.name.clone()).or_default() += 1;
        Done::Yes
    }
}

/// The bytes of several pieces: `[{iov_base="...", iov_len=n}, ...]`.
fn vectors(text: &str) -> Vec<u8> {
    let pieces = text.split("iov_base=").skip(1);
    pieces.flat_map(|piece| bytes(piece.split(", iov_len=").next().unwrap())).collect()
}
