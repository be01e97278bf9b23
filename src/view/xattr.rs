//! Extended attributes of the view: what a file is, whether it is here, and how old a listing is.

use super::Core;
use super::error::ViewError;
use super::node::Node;
use crate::types::Utc;

const PREFIX: &str = "user.ckptfs.";

fn civil(ms: u64) -> String {
    format!("{:#}", Utc(ms))
}

impl Core {
    /// The value of an attribute.
    pub(super) fn xattr(&self, ino: u64, name: &str) -> Result<Vec<u8>, ViewError> {
        let node = self.inodes.get(ino).ok_or(ViewError::Stale)?;
        if !name.starts_with("user.") {
            return Err(ViewError::NotSupported);
        }
        let Some(name) = name.strip_prefix(PREFIX) else { return Err(ViewError::NoData) };
        let value = match &node {
            Node::Root => match name {
                "listed" => self.jobs_listed_ms().map(civil),
                // Tells who follows a link into the mount whether its digests may be believed.
                "store" => self.source.store_id().map(|id| id.to_string()),
                // Tells `umount` which process to wait for.
                "daemon" => Some(std::process::id().to_string()),
                _ => None,
            },
            Node::Job(job) if name == "listed" => job.listed_ms().map(civil),
            Node::Blob(blob) => {
                let names = blob.names().len();
                self.file_xattr(name, &blob.digest, blob.size, names)
            }
            Node::File(file) => self.file_xattr(name, &file.digest, file.size, 1),
            _ => None,
        };
        value.map(String::into_bytes).ok_or(ViewError::NoData)
    }

    fn file_xattr(&self, name: &str, digest: &crate::types::Digest, size: u64, names: usize) -> Option<String> {
        match name {
            "digest" => Some(digest.to_hex()),
            "size" => Some(size.to_string()),
            "refs" => Some(names.to_string()),
            "residency" => {
                let local = self.source.is_local(digest, size);
                Some(if local { "local" } else { "lazy" }.to_owned())
            }
            _ => None,
        }
    }
}
