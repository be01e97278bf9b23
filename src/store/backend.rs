//! What a store must be able to do. One attempt each: deadlines belong to the backend, retries and reading back to
//! [`super::Store`].

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use super::BlobSource;
use super::error::Result;
use crate::local::process::Room;
use crate::metrics::Counter;
use crate::types::Digest;

/// Takes bytes in order.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// What a store answered to a create-if-absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It was created.
    Created,
    /// Refused, because something is there or because two requests met (then perhaps nothing was stored).
    Exists,
}

/// One object of a listing, by its key's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawListed {
    /// The key, relative to the store's root.
    pub key: String,
    /// Its length in bytes.
    pub size: u64,
}

/// A blob that is written before its name is known. Dropped, it is gone.
pub trait Staging: Send + fmt::Debug {
    /// Appends bytes.
    ///
    /// # Errors
    /// When they cannot be written.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Takes over all blocks of a file where the file system can share them, instead of any [`Staging::write`]. What is returned is
    /// to be hashed in the file's place, which may change meanwhile.
    ///
    /// # Errors
    /// When the disk is full or fails.
    fn share(&mut self, from: &File) -> Result<Option<&File>>;

    /// Has the disk begin with all that was written: [`Staging::publish`] waits for it.
    fn start(&self);

    /// Gives it the key of its digest, as [`Backend::upload`] would have. Its length is counted in `sent`.
    ///
    /// # Errors
    /// As [`Backend::upload`].
    fn publish(self: Box<Self>, key: &str, length: u64, sent: &Counter) -> Result<()>;
}

/// A setting of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketSetting {
    /// Rules that delete or move objects by age.
    Lifecycle,
    /// Whether old versions are kept.
    Versioning,
}

/// What a server says of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketAnswer {
    /// S3's XML.
    Text(String),
    /// It is not set.
    None,
    /// It is not known, for this reason.
    Unknown(String),
}

/// A place that keeps objects. Keys are relative to its root and contain no `.` or `..` components. Errors that may pass are
/// [`super::StoreError::Unavailable`]; whatever else is final.
pub trait Backend: Send + Sync + fmt::Debug {
    /// A whole object; nothing when there is none. One larger than `max_len` is an error.
    ///
    /// # Errors
    /// When it cannot be read.
    fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>>;

    /// Gives the bytes of a range to `sink`. `size`: the length that the object must have, where it is known, looked at before the first byte.
    ///
    /// # Errors
    /// When it is missing, shorter or of another size, or cannot be read. Some bytes may have been given before.
    fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()>;

    /// The length of an object; nothing when there is none.
    ///
    /// # Errors
    /// When the store cannot say.
    fn head(&self, key: &str) -> Result<Option<u64>>;

    /// All objects below `directory` (the whole store when it is empty) whose keys come after `after`, in the order of keys. With a `limit`: that
    /// many of them, any.
    ///
    /// # Errors
    /// When any part of the list cannot be had.
    fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>>;

    /// Creates an object if there is none of its key. `durable`: it survives a power cut.
    ///
    /// # Errors
    /// After a transient error it may or may not have been created.
    fn create(&self, key: &str, body: Bytes, durable: bool) -> Result<Put>;

    /// Creates or replaces an object.
    ///
    /// # Errors
    /// After a transient error it may or may not have been done.
    fn replace(&self, key: &str, body: Bytes) -> Result<()>;

    /// Stores a blob, whole or not at all, and only if its bytes have this digest. What is sent is counted in `sent`.
    /// Durable after the next [`Backend::flush`] or [`Backend::create`].
    ///
    /// # Errors
    /// When the source cannot be read or does not have the digest, or the store refuses.
    fn upload(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()>;

    /// Begins a blob whose digest is not known yet, where the place can name it later.
    ///
    /// # Errors
    /// When nothing can be written there.
    fn stage(&self) -> Result<Option<Box<dyn Staging + '_>>> {
        Ok(None)
    }

    /// Stores an object whole, in the place of whatever has its key, and only if its bytes have this digest: readers see the
    /// old bytes or the new ones. Durable after the next [`Backend::flush`].
    ///
    /// # Errors
    /// As [`Backend::upload`], which does this already where a put replaces.
    fn mend(&self, key: &str, digest: &Digest, source: &BlobSource<'_>, sent: &Counter) -> Result<()> {
        self.upload(key, digest, source, sent)
    }

    /// The lengths of objects, in the order of their keys, where looking at each costs next to nothing; else nothing at all.
    ///
    /// # Errors
    /// When one of them cannot be looked at.
    fn lengths(&self, _keys: &[&str]) -> Result<Option<Vec<Option<u64>>>> {
        Ok(None)
    }

    /// Deletes objects. Those that are not there are no error.
    ///
    /// # Errors
    /// When one of them may still be there.
    fn delete(&self, keys: &[&str]) -> Result<()>;

    /// Makes all uploads before it durable.
    ///
    /// # Errors
    /// When they may not be; what was uploaded since the last flush must not be relied on.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Whether requests about metadata never wait for a network.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Whether the place itself is there.
    ///
    /// # Errors
    /// When that cannot be told.
    fn exists_root(&self) -> Result<bool> {
        Ok(true)
    }

    /// Makes the place.
    ///
    /// # Errors
    /// When it cannot be made.
    fn create_root(&self) -> Result<()> {
        Ok(())
    }

    /// The directory that it lies in and the room on its disk; nothing where it lies in none, or that is not there yet.
    ///
    /// # Errors
    /// When that cannot be told.
    fn disk(&self) -> Result<Option<(PathBuf, Room)>> {
        Ok(None)
    }

    /// The directory of the bucket that it lies in, empty at the top; nothing where it lies in none.
    fn bucket_directory(&self) -> Option<&str> {
        None
    }

    /// A setting of the bucket. What cannot be had is unknown, and no error.
    ///
    /// # Errors
    /// When the server cannot be reached.
    fn ask_bucket(&self, _setting: BucketSetting) -> Result<BucketAnswer> {
        Ok(BucketAnswer::Unknown("this kind of store has no way to ask".to_owned()))
    }

    /// Removes what writers that died left behind under names that are never listed. Says how many.
    ///
    /// # Errors
    /// When it cannot be told or removed.
    fn remove_leftovers(&self) -> Result<u64> {
        Ok(0)
    }
}
