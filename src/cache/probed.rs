//! Which stores this cache has seen decide a race, so that it is run once per cache and store.

use super::{Cache, CacheError};
use crate::local::Durability;
use crate::types::Uid;

impl Cache {
    /// Whether the store with this id passed the probe with this cache before.
    ///
    /// # Errors
    /// When the cache cannot be looked at.
    pub fn is_probed(&self, store: Uid) -> Result<bool, CacheError> {
        Ok(self.inner.root.stat(mark(store))?.is_some())
    }

    /// Remembers that it did.
    ///
    /// # Errors
    /// When the cache cannot be written to.
    pub fn set_probed(&self, store: Uid) -> Result<(), CacheError> {
        let name = mark(store);
        self.inner.root.publish_new(&name, b"", 0o600, Durability::FileOnly)?;
        if let Some((uid, gid)) = self.inner.give_to() {
            crate::local::process::lchown_at(&self.inner.root, &name, uid, gid)?;
        }
        Ok(())
    }
}

fn mark(store: Uid) -> String {
    format!("probed-{store}")
}
