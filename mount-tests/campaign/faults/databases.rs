//! RocksDB directories that grow: made once by Debian's `ldb`, then linked, each with a file that no other has.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ckptfs::types::Digest;

use crate::kit::noise;
use crate::tool::{load, walk};

use super::random::{below, draw};
use super::truth::{Files, files};

/// Databases, and versions of each.
const CHAINS: u64 = 3;
const VERSIONS: u64 = 6;

/// Rows of a table that lies in the bundle, and of one that is a blob of its own.
const FEW: u64 = 60;
const MANY: u64 = 700;

/// Larger than goes up in one request to a real server.
pub const LARGE: usize = 17 << 20;

pub struct Databases {
    root: PathBuf,
    next: AtomicU64,
    /// Every table of the templates.
    tables: BTreeMap<Digest, Vec<u8>>,
    noise: Vec<u8>,
}

fn junk(name: &str) -> bool {
    name.starts_with("LOG") || name == "LOCK" || Path::new(name).extension().is_some_and(|e| e == "log" || e == "dbtmp")
}

impl Databases {
    pub fn make(root: &Path) -> Self {
        for chain in 0..CHAINS {
            let live = root.join(format!("live-{chain}"));
            for version in 0..VERSIONS {
                let rows = if version % 3 == 1 { MANY } else { FEW };
                load(&live, "default", chain * 100 + version, rows);
                let to = root.join(format!("chain-{chain}-{version}"));
                fs::create_dir(&to).unwrap();
                for entry in fs::read_dir(&live).unwrap().map(|e| e.unwrap()) {
                    if !junk(entry.file_name().to_str().unwrap()) {
                        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
                    }
                }
            }
        }
        let mut tables = BTreeMap::new();
        for entry in walk(root) {
            if entry.extension().is_some_and(|e| e == "sst") {
                let bytes = fs::read(&entry).unwrap();
                tables.insert(Digest::of(&bytes), bytes);
            }
        }
        Self { root: root.to_owned(), next: AtomicU64::new(0), tables, noise: noise(1, LARGE) }
    }

    /// So many bytes that nobody else has: of a large piece of noise that is made once, with a new beginning.
    pub fn bytes(&self, length: usize) -> Bytes {
        let fresh = noise(draw(), 64.min(length));
        let mut bytes = self.noise[..length].to_vec();
        bytes[..fresh.len()].copy_from_slice(&fresh);
        bytes.into()
    }

    /// Some bytes of a table that came from here.
    pub fn piece(&self, digest: &Digest, from: usize, to: usize) -> Option<&[u8]> {
        self.tables.get(digest)?.get(from..to)
    }

    /// A new directory with some version of some database. `large`: with a file of that size, too.
    pub fn take(&self, of: u64, large: usize) -> (PathBuf, Files) {
        let to = self.root.join(format!("taken-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&to).unwrap();
        let from = self.root.join(format!("chain-{}-{}", of % CHAINS, below(VERSIONS)));
        for entry in fs::read_dir(from).unwrap().map(|e| e.unwrap()) {
            let target = to.join(entry.file_name());
            let is_table = target.extension().is_some_and(|e| e == "sst");
            if !is_table || fs::hard_link(entry.path(), &target).is_err() {
                fs::copy(entry.path(), &target).unwrap();
            }
        }
        fs::write(to.join("stamp"), noise(draw(), 200 + below(4000) as usize)).unwrap();
        if large > 0 {
            fs::write(to.join("large"), self.bytes(large)).unwrap();
        }
        let known = files(&to);
        (to, known)
    }
}
