//! What can be tuned about a store.

use std::time::Duration;

use crate::types::KeyRing;

/// Where a bucket's settings and credentials come from: the process's environment, where variables with a prefix may stand for those
/// of another bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Environment {
    prefix: Option<&'static str>,
}

impl Environment {
    /// Where the process has variables with this prefix for a cloud (`CKPTFS_TO_AWS_REGION`), those alone, without the prefix; else the
    /// process's own. They are not mixed: a key of one bucket and a session token of another would be refused by both.
    #[must_use]
    pub const fn prefixed(prefix: &'static str) -> Self {
        Self { prefix: Some(prefix) }
    }

    /// Variables of a cloud (`AWS_`) that have the prefix, without it.
    pub(super) fn own(self, cloud: &str) -> Vec<(String, String)> {
        let Some(prefix) = self.prefix else { return Vec::new() };
        let own = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix(prefix)?.to_owned();
            name.starts_with(cloud).then_some((name, value.into_string().ok()?))
        });
        own.collect()
    }

    /// A variable of a cloud, unless it is empty.
    pub(super) fn get(self, cloud: &str, name: &str) -> Option<String> {
        let own = self.own(cloud);
        let value = if own.is_empty() {
            std::env::var(name).ok()
        } else {
            own.into_iter().find_map(|(own, value)| (own == name).then_some(value))
        };
        value.filter(|value| !value.is_empty())
    }
}

/// Limits of what goes to a bucket and comes from it, in bytes a second. Nothing: as fast as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Of blobs that are sent; records are never held up.
    pub upload: Option<u64>,
    /// Of blobs, and of what an import reads.
    pub fetch: Option<u64>,
}

/// How a store is used. `Default` fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// The longest that a small request may take, retries included. Large transfers get more, by their size.
    pub deadline: Duration,
    /// How often a request is tried. At least once.
    pub attempts: u32,
    /// Bytes of files that may be in memory at once because they are being sent.
    pub memory: u64,
    /// Largest blob that goes to an object store in one request; larger ones go in parts.
    pub single_put: u64,
    /// Smallest of those parts but the last. Servers refuse parts below 5 MiB.
    pub part: u64,
    /// Takes `file://` on NFS, SMB, 9p or FUSE. It risks lost checkpoints: link, rename and fsync there may not do what they say.
    pub allow_unsafe_file_system: bool,
    /// Signs every record that is written, and refuses those that are not signed by one of these.
    pub keys: Option<KeyRing>,
    /// How fast a bucket is written and read.
    pub rates: Rates,
    /// Where a bucket's settings and credentials come from.
    pub environment: Environment,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            attempts: 4,
            memory: 256 << 20,
            single_put: 16 << 20,
            part: 8 << 20,
            allow_unsafe_file_system: false,
            keys: None,
            rates: Rates::default(),
            environment: Environment::default(),
        }
    }
}

/// The slowest transfer that is still waited for: 1 MiB a second.
const SLOWEST: u64 = 1 << 20;

impl StoreOptions {
    /// The longest that one attempt to move `bytes` may take.
    pub(super) fn attempt_limit(&self, bytes: u64) -> Duration {
        // A third, so that a request that met a dead connection is tried again within the deadline.
        self.deadline / 3 + Duration::from_secs(bytes / SLOWEST)
    }

    /// The longest that all attempts together may take.
    pub(super) fn limit(&self, bytes: u64) -> Duration {
        self.deadline + Duration::from_secs(bytes / SLOWEST).saturating_mul(3)
    }
}
