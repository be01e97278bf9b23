//! The tree below a job. It never changes, and is made when it is first touched: a checkpoint's directories from its manifest,
//! a subtask's from its task manifest, which is fetched then.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};

use super::error::ViewError;
use super::job::Job;
use super::node::{Blob, BlobName, Checkpoint, Directory, Entry, Node, StateFile, Task, Text, What};
use super::{Core, FLINK, MANIFEST, inode, text};
use crate::error::Kind;
use crate::format::{CheckpointManifest, FileEntry, TaskManifest};
use crate::lifecycle::driver;
use crate::types::CheckpointNumber;
use crate::types::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

fn damaged(path: &str, why: &str) -> ViewError {
    ViewError::Damaged(format!("the manifest of {path} is damaged: {why}"))
}

/// A place in a manifest's list, which is bounded.
fn place(index: usize) -> Result<u32, ViewError> {
    u32::try_from(index).map_err(|_| ViewError::Stale)
}

/// Whether a file is identified by its content on the mount.
fn is_content(file: &FileEntry) -> bool {
    file.path.rocks_file().is_some_and(|name| name.ends_with(".sst") || name.ends_with(".blob"))
}

/// Whether a directory of a subtask holds whole files that Flink stored; the others hold parts of them.
fn holds_streams(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name == "stream" || name == "db" || name.starts_with("db-")
}

impl Core {
    pub(super) fn checkpoint_directory(
        &self,
        job: &Job,
        number: CheckpointNumber,
        manifest: &Arc<CheckpointManifest>,
    ) -> Option<Arc<Directory>> {
        let checkpoint = Arc::new(Checkpoint {
            job: job.name.clone(),
            number,
            manifest: manifest.clone(),
            opens: AtomicU64::new(0),
            link: AtomicU64::new(0),
            blobs: Mutex::default(),
            flink: OnceLock::new(),
        });
        self.directory(job.ino, &format!("/{}/{number}", job.name), &checkpoint, What::Checkpoint).ok()
    }

    fn directory(
        &self,
        parent: u64,
        path: &str,
        checkpoint: &Arc<Checkpoint>,
        what: What,
    ) -> Result<Arc<Directory>, ViewError> {
        let node = self.inodes.claim(inode::identity_of_path(path), false, |ino| {
            Node::Directory(Arc::new(Directory {
                ino,
                parent,
                path: path.into(),
                checkpoint: checkpoint.clone(),
                what,
                entries: OnceLock::new(),
                making: Mutex::default(),
            }))
        });
        match node {
            Node::Directory(directory) => Ok(directory),
            _ => Err(damaged(path, "a directory has the path of a file")),
        }
    }

    /// A directory's entries where memory has them.
    pub(super) fn known_entries(&self, dir: &Directory) -> Option<Result<Arc<[Entry]>, ViewError>> {
        match (dir.entries.get(), &dir.what) {
            (Some(entries), _) => Some(Ok(entries.clone())),
            (None, What::Subtask(_) | What::Flink(_)) => None,
            (None, _) => Some(self.entries(dir)),
        }
    }

    /// A directory's entries; asks the store for a task manifest that is not local.
    pub(super) fn entries(&self, dir: &Directory) -> Result<Arc<[Entry]>, ViewError> {
        let _making = dir.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = dir.entries.get() {
            return Ok(entries.clone());
        }
        let mut entries = match &dir.what {
            What::Checkpoint => self.operators(dir)?,
            What::Operator(range) => self.subtasks(dir, range.clone())?,
            What::Subtask(at) => self.subtask(dir, *at)?,
            What::Flink(at) => self.flink(dir, *at)?,
            What::Inner => Vec::new(),
        };
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(dir.entries.get_or_init(|| entries.into()).clone())
    }

    fn manifest_text(&self, dir: &Directory, task: Option<(&TaskManifest, Arc<Task>)>) -> Result<Entry, ViewError> {
        let checkpoint = &dir.checkpoint;
        let size = text::length(&checkpoint.manifest, task.as_ref().map(|(manifest, _)| *manifest))?;
        let task = task.map(|(_, task)| task);
        let identity = inode::identity_of_path(&format!("{}/{MANIFEST}", dir.path));
        let checkpoint = checkpoint.clone();
        let node = self.inodes.claim(identity, false, |ino| Node::Text(Arc::new(Text { ino, size, checkpoint, task })));
        Ok(Entry { name: MANIFEST.into(), node })
    }

    fn operators(&self, dir: &Directory) -> Result<Vec<Entry>, ViewError> {
        let subtasks = &dir.checkpoint.manifest.subtasks;
        let mut out = vec![self.manifest_text(dir, None)?];
        let mut at = 0;
        // Subtasks are sorted by operator, so each operator is one run.
        for run in subtasks.chunk_by(|a, b| a.operator == b.operator) {
            let Some(first) = run.first() else { continue };
            let path = format!("{}/{}", dir.path, first.operator);
            let what = if first.operator.is_flink() { What::Flink(at) } else { What::Operator(at..at + run.len()) };
            let operator = self.directory(dir.ino, &path, &dir.checkpoint, what)?;
            out.push(Entry { name: first.operator.as_str().into(), node: Node::Directory(operator) });
            at += run.len();
        }
        Ok(out)
    }

    fn subtasks(&self, dir: &Directory, range: Range<usize>) -> Result<Vec<Entry>, ViewError> {
        let all = &dir.checkpoint.manifest.subtasks;
        let mut out = Vec::with_capacity(range.len());
        for (at, subtask) in all.iter().enumerate().take(range.end).skip(range.start) {
            let name = subtask.subtask.to_string();
            let path = format!("{}/{name}", dir.path);
            let node = Node::Directory(self.directory(dir.ino, &path, &dir.checkpoint, What::Subtask(at))?);
            out.push(Entry { name: name.into(), node });
        }
        Ok(out)
    }

    fn subtask(&self, dir: &Directory, at: usize) -> Result<Vec<Entry>, ViewError> {
        let checkpoint = &dir.checkpoint;
        let listed = checkpoint.manifest.subtasks.get(at).ok_or(ViewError::Stale)?;
        let manifest = self.source.task(&checkpoint.job, checkpoint.number, listed)?;
        if (manifest.files.len() as u64, manifest.logical_bytes) != (listed.files, listed.logical_bytes) {
            return Err(damaged(&dir.path, "its sums are not those that the checkpoint manifest names"));
        }
        self.manifests.keep(listed.manifest, &manifest);
        let first = manifest.files.iter().position(|f| f.path.db_file().is_some()).unwrap_or_default();
        let task = Arc::new(Task {
            checkpoint: checkpoint.clone(),
            at,
            first: place(first)?,
            home: OnceLock::new(),
            prepared: Mutex::new(false),
        });
        let mut out = vec![self.manifest_text(dir, Some((&manifest, task.clone())))?];
        // Directories by path; their entries are complete only at the end, since runs of files share them.
        let mut open: HashMap<String, (Arc<Directory>, Vec<Entry>)> = HashMap::new();
        for (index, file) in manifest.files.iter().enumerate() {
            let mut parent = dir.ino;
            let mut parent_path = String::new();
            let parts: Vec<&str> = file.path.as_str().split('/').collect();
            let Some((name, above)) = parts.split_last() else { continue };
            for part in above {
                let path = format!("{parent_path}/{part}");
                if !open.contains_key(&path) {
                    let made = self.directory(parent, &format!("{}{path}", dir.path), checkpoint, What::Inner)?;
                    let entry = Entry { name: (*part).into(), node: Node::Directory(made.clone()) };
                    match open.get_mut(&parent_path) {
                        Some((_, entries)) => entries.push(entry),
                        None => out.push(entry),
                    }
                    open.insert(path.clone(), (made, Vec::new()));
                }
                parent = open.get(&path).map_or(parent, |(d, _)| d.ino);
                parent_path = path;
            }
            if is_content(file)
                && let Some((home, _)) = open.get(&parent_path)
            {
                let _ = task.home.set(home.clone());
            }
            let node = self.file(&dir.path, &task, place(index)?, file);
            let entry = Entry { name: (*name).into(), node };
            match open.get_mut(&parent_path) {
                Some((_, entries)) => entries.push(entry),
                None => out.push(entry),
            }
        }
        for (made, mut entries) in open.into_values() {
            entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            made.entries.get_or_init(|| entries.into());
        }
        Ok(out)
    }

    /// What Flink wrote of the checkpoint as a whole, and each file that this names by its digest. Those are the files of the subtasks, under
    /// one more name.
    fn flink(&self, dir: &Directory, at: usize) -> Result<Vec<Entry>, ViewError> {
        let own = self.subtask(dir, at)?;
        let mut out = match Self::find(&own, FLINK) {
            Ok(Node::Directory(files)) => self.entries(&files)?.to_vec(),
            // Taken in part: Flink could not restore from it.
            _ => return Ok(Vec::new()),
        };
        let Some(Node::Directory(root)) = self.inodes.get(dir.parent) else { return Err(ViewError::Stale) };
        let mut subtasks = Vec::new();
        for operator in self.directories(&root)?.iter().filter(|o| o.ino != dir.ino) {
            subtasks.extend(self.directories(operator)?);
        }
        // Each is a manifest that may have to be fetched.
        driver::parallel(subtasks.iter().collect(), |subtask: &Arc<Directory>| self.entries(subtask).map(drop))?;
        let mut content: BTreeMap<String, Node> = BTreeMap::new();
        for subtask in subtasks {
            for files in self.directories(&subtask)?.iter().filter(|d| holds_streams(&d.path)) {
                for entry in self.entries(files)?.iter() {
                    let digest = match &entry.node {
                        Node::File(file) => file.digest,
                        Node::Blob(blob) => blob.digest,
                        _ => continue,
                    };
                    content.insert(digest.to_hex(), entry.node.clone());
                }
            }
        }
        let _ = dir.checkpoint.flink.set(dir.ino);
        out.extend(content.into_iter().map(|(name, node)| Entry { name: name.into(), node }));
        Ok(out)
    }

    fn directories(&self, dir: &Directory) -> Result<Vec<Arc<Directory>>, ViewError> {
        let entries = self.entries(dir)?;
        let below = entries.iter().filter_map(|e| match &e.node {
            Node::Directory(directory) => Some(directory.clone()),
            _ => None,
        });
        Ok(below.collect())
    }

    fn file(&self, dir: &str, task: &Arc<Task>, index: u32, file: &FileEntry) -> Node {
        if !is_content(file) {
            let identity = inode::identity_of_path(&format!("{dir}/{}", file.path));
            let task = task.clone();
            return self.inodes.claim(identity, false, |ino| {
                self.file_bytes.fetch_add(file.size, Ordering::Relaxed);
                let (digest, size) = (file.digest, file.size);
                Node::File(Arc::new(StateFile { ino, task, index, digest, size, seen: AtomicBool::new(false) }))
            });
        }
        let identity = inode::identity_of_content(&file.digest, file.size);
        let mut fresh = false;
        let node = self.inodes.claim(identity, true, |ino| {
            fresh = true;
            self.file_bytes.fetch_add(file.size, Ordering::Relaxed);
            Node::Blob(Arc::new(Blob {
                ino,
                digest: file.digest,
                size: file.size,
                local: AtomicBool::new(false),
                opens: AtomicU64::new(0),
                names: Mutex::default(),
            }))
        });
        if let Node::Blob(blob) = &node {
            if fresh {
                self.look_for_local(blob);
            }
            let name = BlobName { task: task.clone(), index };
            blob.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
            task.checkpoint.blobs.lock().unwrap_or_else(PoisonError::into_inner).push(blob.clone());
        }
        node
    }

    /// Whether a file by content is local by now; then all its names get the local number.
    pub(super) fn look_for_local(&self, blob: &Arc<Blob>) {
        if blob.is_local() {
            return;
        }
        if self.source.is_local(&blob.digest, blob.size) {
            self.completed(blob);
        }
    }

    /// A name in a directory below a job.
    pub(super) fn find(entries: &[Entry], name: &str) -> Result<Node, ViewError> {
        entries
            .binary_search_by(|e| (*e.name).cmp(name))
            .ok()
            .and_then(|at| entries.get(at))
            .map(|e| e.node.clone())
            .ok_or(ViewError::NotFound)
    }
}

/// An error of a manifest that names what the store does not have.
pub(super) fn lost(digest: &crate::types::Digest) -> ViewError {
    ViewError::Other(Kind::NotFound, format!("no manifest in use names where {digest} is"))
}
