//! A directory with a store, a cache, databases and what must be true of them; made once, and copied for each point.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ckptfs::cache::{Session, SessionOptions};
use ckptfs::local::{identity, xattr};
use ckptfs::store::{Store, StoreOptions};
use ckptfs::types::{Digest, Key, Prefix, RecordKind};
use serde::{Deserialize, Serialize};

use crate::tool::{PROGRAM, Said, database};

/// Digests of a directory's files, by name.
pub type Files = BTreeMap<String, String>;

/// What was stored, as the one who stored it knows it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Truth {
    /// Directories by name.
    pub directories: BTreeMap<String, Files>,
    /// For each completed checkpoint (`app/2`), the directory of each subtask (`db/0`).
    pub completed: BTreeMap<String, BTreeMap<String, String>>,
}

pub struct Yard {
    pub root: PathBuf,
    /// Name of the cache that the scenario works with.
    pub cache: String,
    /// A store elsewhere, in the place of the directory `store`: its URL, and where its server is.
    pub remote: Option<(String, String)>,
}

impl Yard {
    pub fn at(root: &Path, cache: &str) -> Self {
        Self { root: root.to_owned(), cache: cache.to_owned(), remote: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn store(&self) -> String {
        self.remote.as_ref().map_or_else(|| format!("file://{}", self.text("store")), |(url, _)| url.clone())
    }

    /// The program, with this yard's store and cache.
    pub fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args);
        self.surround(&mut command);
        command
    }

    pub fn surround(&self, command: &mut Command) {
        command.current_dir(&self.root).stdin(Stdio::null()).env("HOME", &self.root);
        command.env("CKPTFS_STORE", self.store()).env("CKPTFS_CACHE", self.path(&self.cache));
        if let Some((_, server)) = &self.remote {
            command.env("AWS_ENDPOINT_URL", server).env("AWS_ALLOW_HTTP", "true");
            command.env("AWS_ACCESS_KEY_ID", "writer").env("AWS_SECRET_ACCESS_KEY", "writer-secret");
        }
        command.env_remove("CKPTFS_KEY_FILE").env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
    }

    pub fn run(&self, args: &[String]) -> Said {
        self.command(args).output().unwrap().into()
    }

    pub fn session(&self, cache: &str) -> Result<Session, String> {
        let options =
            SessionOptions { store: Some(self.store()), cache: Some(self.path(cache)), ..SessionOptions::default() };
        Session::open(&options).map_err(|e| format!("store and cache {cache} cannot be opened: {e:#}"))
    }

    pub fn truth(&self) -> Truth {
        serde_json::from_slice(&fs::read(self.path("truth.json")).unwrap()).unwrap()
    }

    pub fn tell(&self, truth: &Truth) {
        fs::write(self.path("truth.json"), serde_json::to_vec(truth).unwrap()).unwrap();
    }

    /// Notes what a directory holds.
    pub fn learn(&self, name: &str) {
        let mut truth = if self.path("truth.json").exists() { self.truth() } else { Truth::default() };
        truth.directories.insert(name.to_owned(), digests(&self.path(name)));
        self.tell(&truth);
    }

    /// Notes that a checkpoint is completed, and what it is of.
    pub fn completed(&self, checkpoint: &str, subtasks: &[(&str, &str)]) {
        let mut truth = self.truth();
        let subtasks = subtasks.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        truth.completed.insert(checkpoint.to_owned(), subtasks);
        self.tell(&truth);
    }

    fn far(&self) -> Option<Store> {
        self.remote.as_ref().map(|(url, _)| Store::open(url, StoreOptions::default()).unwrap())
    }

    /// Keys of the store's objects of a kind, and whatever else lies among them.
    pub fn keys(&self, kind: RecordKind) -> Vec<String> {
        if let Some(store) = self.far() {
            let listed = store.list_all(&Prefix::kind(kind)).unwrap();
            let ours = listed.ours.iter().map(|o| o.key.as_str().to_owned());
            return ours.chain(listed.foreign.into_iter().map(|f| f.key)).collect();
        }
        let (store, below) = (self.path("store"), self.path("store").join(kind.as_str()));
        let files = if below.exists() { crate::tool::walk(&below) } else { Vec::new() };
        files.iter().map(|f| f.strip_prefix(&store).unwrap().to_str().unwrap().to_owned()).collect()
    }

    /// A record's bytes.
    pub fn record(&self, key: &str) -> Option<Vec<u8>> {
        match self.far() {
            Some(store) => store.get(&Key::parse(key)?, 1 << 20).unwrap().map(Into::into),
            None => fs::read(self.path("store").join(key)).ok(),
        }
    }

    /// Outcomes: key and bytes.
    pub fn decided(&self) -> BTreeMap<String, Vec<u8>> {
        let named = self.keys(RecordKind::Outcome).into_iter().filter(|k| k.ends_with(".json"));
        named.map(|key| (key.clone(), self.record(&key).unwrap())).collect()
    }
}

pub fn digests(dir: &Path) -> Files {
    database(dir).into_iter().map(|(name, bytes)| (name, Digest::of(&bytes).to_hex())).collect()
}

/// Whether a file is never written in place once it has its name and its inode's record: it may be shared with a copy, where the record
/// then holds too. One without a record is not: the first visit would give it one, and no other visit would see the program make it.
fn immutable(path: &Path) -> bool {
    let text = path.to_str().unwrap();
    let recorded = || {
        let record = fs::File::open(path).and_then(|file| xattr::get(&file, identity::ATTRIBUTE));
        record.is_ok_and(|record| record.is_some())
    };
    text.contains("/store/blobs/") || (text.ends_with(".sst") || text.contains("/files/")) && recorded()
}

/// Copies a tree. Immutable files are linked.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            copy(&path, &target);
        } else if kind.is_symlink() {
            symlink(fs::read_link(&path).unwrap(), target).unwrap();
        } else if immutable(&path) {
            // To another file system it is copied.
            fs::hard_link(&path, &target).or_else(|_| fs::copy(&path, &target).map(drop)).unwrap();
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
