//! What may be on the disk when the power comes back: all that is durable, and of the rest what luck left.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ckptfs::local::{identity, xattr};
use ckptfs::types::{Digest, Hasher};

use super::model::{Change, Inode, Kind, Model, apply};

const PAGE: u64 = 4096;

/// Luck that is the same again for the same seed.
pub struct Luck(u64);

impl Luck {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }
}

/// What becomes of bytes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bytes {
    Lost,
    Kept,
    /// The size is there, the data is not.
    Zero,
    Garbage,
    /// Each page for itself.
    Pages,
    /// Another of these for every file.
    Any,
}

/// What becomes of what was not synced.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    pub bytes: Bytes,
    /// Of a hundred changes of entries so many are kept.
    pub entries: u64,
    /// The harness's own planted fault: no fsync counts.
    pub deaf: bool,
}

impl Fate {
    /// The `n`th fate of a cut: the boundaries first, then random ones.
    pub fn of(n: u64, luck: &mut Luck) -> Self {
        let (bytes, entries) = match n {
            0 => (Bytes::Lost, 0),
            1 => (Bytes::Kept, 100),
            2 => (Bytes::Zero, 100),
            3 => (Bytes::Lost, 100),
            4 => (Bytes::Kept, 0),
            5 => (Bytes::Garbage, 100),
            _ => {
                let bytes = [Bytes::Any, Bytes::Any, Bytes::Pages, Bytes::Pages, Bytes::Zero];
                (bytes[luck.below(5) as usize], [20, 50, 80, 95][luck.below(4) as usize])
            }
        };
        Self { bytes, entries, deaf: false }
    }
}

/// A file as it is found.
pub struct Found {
    pub bytes: Vec<u8>,
    /// What its inode says that it holds, and whether the inode is still as it was then.
    pub vouched: Option<(Digest, bool)>,
    raw: BTreeMap<String, Vec<u8>>,
    mode: u32,
}

/// A disk after a power cut, below the directories that a run may have changed.
pub struct Image {
    pub dirs: Vec<PathBuf>,
    /// Names and the inodes behind them.
    pub names: BTreeMap<PathBuf, usize>,
    pub files: HashMap<usize, Found>,
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// How many changes were not durable and had to be drawn for.
    pub drawn: u64,
}

impl Image {
    /// The disk when the power went at this moment.
    pub fn draw(model: &Model, cut: u64, fate: Fate, luck: &mut Luck) -> Self {
        let mut image =
            Self { dirs: Vec::new(), names: BTreeMap::new(), files: HashMap::new(), links: BTreeMap::new(), drawn: 0 };
        // Both halves of a rename have one fate, also in two directories: of none is only the loss of the old name on the disk.
        let mut renames = HashMap::new();
        for inode in &model.inodes {
            for (span, number, ..) in inode.entries.iter().filter(|e| e.0.begun < cut) {
                if inode.durable(*span, false, cut) && !(fate.deaf && span.begun > 0) {
                    renames.insert(*number, true);
                }
            }
        }
        image.dir(model, 0, Path::new(""), cut, fate, luck, &mut renames);
        image
    }

    #[allow(clippy::too_many_arguments)]
    fn dir(
        &mut self,
        model: &Model,
        at: usize,
        path: &Path,
        cut: u64,
        fate: Fate,
        luck: &mut Luck,
        renames: &mut HashMap<u64, bool>,
    ) {
        let inode = &model.inodes[at];
        let mut names: BTreeMap<&OsString, usize> = BTreeMap::new();
        for (span, number, name, to) in inode.entries.iter().filter(|e| e.0.begun < cut) {
            let durable = inode.durable(*span, false, cut) && !(fate.deaf && span.begun > 0);
            self.drawn += u64::from(!durable);
            let kept = durable || *renames.entry(*number).or_insert_with(|| luck.percent(fate.entries));
            match to {
                Some(to) if kept => names.insert(name, *to),
                None if kept => names.remove(name),
                _ => None,
            };
        }
        for (name, to) in names {
            // The databases that are snapshotted are not ours, and what is mounted is no disk.
            let name_text = name.to_string_lossy();
            if path.as_os_str().is_empty() && (name_text.starts_with("db") || name_text.starts_with("mnt")) {
                continue;
            }
            let below = path.join(name);
            match &model.inodes[to].kind {
                Kind::Dir => {
                    self.dirs.push(below.clone());
                    self.dir(model, to, &below, cut, fate, luck, renames);
                }
                Kind::Link(target) => {
                    self.links.insert(below, target.clone());
                }
                Kind::File => {
                    if !self.files.contains_key(&to) {
                        let found = self.file(&model.inodes[to], cut, fate, luck);
                        self.files.insert(to, found);
                    }
                    self.names.insert(below, to);
                }
            }
        }
    }

    fn file(&mut self, inode: &Inode, cut: u64, fate: Fate, luck: &mut Luck) -> Found {
        let how = match fate.bytes {
            Bytes::Any => [Bytes::Lost, Bytes::Kept, Bytes::Zero, Bytes::Garbage, Bytes::Pages][luck.below(5) as usize],
            how => how,
        };
        let (mut bytes, mut vouched, mut raw) = (Vec::new(), None, BTreeMap::new());
        let (mut changes, mut asked) = (0, 0);
        let mut valid_for = None;
        for (span, change) in inode.changes.iter().filter(|c| c.0.begun < cut) {
            let is_attribute = matches!(change, Change::Attribute(..));
            asked += usize::from(!is_attribute);
            let durable = inode.durable(*span, is_attribute, cut) && !(fate.deaf && span.begun > 0);
            self.drawn += u64::from(!durable);
            match change {
                Change::Attribute(name, value, size, after) => {
                    let kept = durable || how == Bytes::Zero || (how != Bytes::Lost && luck.percent(60));
                    if kept {
                        match value {
                            Some(value) => raw.insert(name.clone(), value.clone()),
                            None => raw.remove(name),
                        };
                        valid_for = value.is_some().then_some((*size, *after));
                    }
                }
                change if durable => {
                    apply(&mut bytes, change);
                    changes += 1;
                }
                Change::Write(at, data) => lossy(&mut bytes, *at, data, how, luck),
                change if how == Bytes::Kept || (how != Bytes::Lost && luck.percent(50)) => apply(&mut bytes, change),
                _ => {}
            }
        }
        let _ = changes;
        // What was recorded is believed while size and times are as they were: the record may have reached the disk, and the bytes not.
        if let (Some(value), Some((size, after))) = (raw.get(identity::ATTRIBUTE), valid_for)
            && let Some(digest) = value.get(1..33).and_then(|d| d.first_chunk())
        {
            vouched = Some((Digest::from_bytes(*digest), size == bytes.len() as u64 && after == asked));
        }
        Found { bytes, vouched, raw, mode: inode.mode }
    }

    /// What tells images apart: everything but the mode.
    pub fn hash(&self) -> Digest {
        let mut hasher = Hasher::new();
        for dir in &self.dirs {
            hasher.update(dir.as_os_str().as_bytes()).update(b"\0d");
        }
        for (path, target) in &self.links {
            hasher.update(path.as_os_str().as_bytes()).update(b"\0l").update(target.as_os_str().as_bytes());
        }
        for (path, at) in &self.names {
            let file = &self.files[at];
            hasher.update(path.as_os_str().as_bytes()).update(b"\0f").update(Digest::of(&file.bytes).as_bytes());
            let vouched = file.vouched.as_ref().map_or([0; 32], |(digest, _)| *digest.as_bytes());
            hasher.update(&vouched).update(&[u8::from(file.vouched.as_ref().is_some_and(|v| v.1))]);
        }
        hasher.finish()
    }

    /// Writes it below a directory.
    pub fn lay(&self, root: &Path) {
        for dir in &self.dirs {
            fs::create_dir(root.join(dir)).unwrap();
        }
        for (path, target) in &self.links {
            std::os::unix::fs::symlink(target, root.join(path)).unwrap();
        }
        let mut laid: HashMap<usize, PathBuf> = HashMap::new();
        for (path, at) in &self.names {
            let path = root.join(path);
            if let Some(first) = laid.get(at) {
                fs::hard_link(first, &path).unwrap();
                continue;
            }
            let found = &self.files[at];
            fs::write(&path, &found.bytes).unwrap();
            let file = File::open(&path).unwrap();
            for (name, value) in &found.raw {
                xattr::set(&file, name, value).unwrap();
            }
            // Inode number and birth time are those of the disk that is drawn; here they are others, so that the record is made anew.
            if let Some((digest, true)) = &found.vouched {
                assert!(identity::record(&file, digest).unwrap(), "{} keeps no inode records", path.display());
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(found.mode)).unwrap();
            laid.insert(*at, path);
        }
    }
}

/// A write of which not all may be there.
fn lossy(bytes: &mut Vec<u8>, at: u64, data: &[u8], how: Bytes, luck: &mut Luck) {
    let garbage = |luck: &mut Luck, n: usize| -> Vec<u8> { (0..n).map(|_| luck.next() as u8).collect() };
    let whole = match how {
        Bytes::Lost => return,
        Bytes::Kept => data.to_vec(),
        Bytes::Zero => vec![0; data.len()],
        Bytes::Garbage => garbage(luck, data.len()),
        Bytes::Pages | Bytes::Any => {
            // The size may be that of any page.
            let short = if luck.percent(30) { luck.below(data.len() as u64 + 1) as usize } else { data.len() };
            let mut from = 0;
            while from < short {
                let page = PAGE - (at + from as u64) % PAGE;
                let to = short.min(from + page as usize);
                match luck.below(5) {
                    0 | 1 => apply(bytes, &Change::Write(at + from as u64, data[from..to].to_vec())),
                    2 => apply(bytes, &Change::Write(at + from as u64, vec![0; to - from])),
                    3 => apply(bytes, &Change::Write(at + from as u64, garbage(luck, to - from))),
                    // As it was before, and no shorter.
                    _ if (bytes.len() as u64) < at + to as u64 => apply(bytes, &Change::Size(at + to as u64)),
                    _ => {}
                }
                from = to;
            }
            return;
        }
    };
    apply(bytes, &Change::Write(at, whole));
}
