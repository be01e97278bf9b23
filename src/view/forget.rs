//! Takes checkpoints that are gone out of memory, or a daemon that lives for months would keep every one that it ever showed. Their
//! names are not found any more, and what is open in them keeps them here.

use std::sync::{Arc, PoisonError};

use super::Core;
use super::node::{Blob, Checkpoint, Directory, Node};
use crate::types::sync::atomic::Ordering;

impl Core {
    /// Forgets everything below a checkpoint's directory, and the directory.
    pub(super) fn forget(&self, directory: &Arc<Directory>) {
        let mut left = vec![directory.clone()];
        while let Some(directory) = left.pop() {
            for entry in directory.entries.get().iter().flat_map(|entries| entries.iter()) {
                match &entry.node {
                    Node::Directory(below) => left.push(below.clone()),
                    Node::Text(text) => self.inodes.remove(text.ino),
                    Node::File(file) => {
                        self.inodes.remove(file.ino);
                        self.file_bytes.fetch_sub(file.size, Ordering::Relaxed);
                    }
                    Node::Blob(blob) => self.forget_name(blob, &directory.checkpoint),
                    Node::Root | Node::Job(_) | Node::Latest(_) => {}
                }
            }
            self.inodes.remove(directory.ino);
        }
        match directory.checkpoint.link.load(Ordering::Relaxed) {
            0 => {}
            link => self.inodes.remove(link),
        }
        directory.checkpoint.blobs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Forgets what a file by content is called in a checkpoint; with its last name, the file.
    fn forget_name(&self, blob: &Arc<Blob>, checkpoint: &Arc<Checkpoint>) {
        let mut names = blob.names.lock().unwrap_or_else(PoisonError::into_inner);
        let before = names.len();
        names.retain(|name| !Arc::ptr_eq(&name.task.checkpoint, checkpoint));
        if names.is_empty() && before > 0 && blob.opens.load(Ordering::SeqCst) == 0 {
            self.inodes.remove(blob.ino);
            self.file_bytes.fetch_sub(blob.size, Ordering::Relaxed);
        }
    }
}
