//! A store and a cache, opened together: what every verb that moves bytes works with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Cache, CacheOptions};
use crate::error::{Error, Kind, Result};
use crate::lifecycle::{self, Catalog, LifecycleError, StoreIdentity};
use crate::limits;
use crate::local::dir::Dir;
use crate::local::process;
use crate::metrics::Work;
use crate::store::{Environment, Rates, Store, StoreOptions};
use crate::types::{KeyRing, Name, Uid};

/// What to open.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The store's URL; nothing for the default one under the user's data directory.
    pub store: Option<String>,
    /// The cache's directory; nothing for the default one.
    pub cache: Option<PathBuf>,
    /// The directory that is snapshotted or restored: the default cache lies on its device, so that files can be linked.
    pub near: Option<PathBuf>,
    /// Create the store where there is none. Only `snapshot`, `open`, `import` and `copy` do.
    pub create: bool,
    /// Use a `file://` store on a network file system all the same.
    pub allow_unsafe_file_system: bool,
    /// A file with the keys that sign records. Nothing: records are written unsigned, and signatures are passed over.
    pub key_file: Option<PathBuf>,
    /// Where a bucket's settings and credentials come from.
    pub environment: Environment,
    /// How fast a bucket is written and read.
    pub rates: Rates,
}

/// An open store with its cache.
#[derive(Debug, Clone)]
pub struct Session {
    /// The store.
    pub store: Store,
    /// Its id.
    pub store_id: Uid,
    /// What writers must know and this version does not.
    pub blocks_writing: Vec<String>,
    /// The cache.
    pub cache: Cache,
    /// The store's jobs.
    pub catalog: Catalog,
    /// Whether this call created the store.
    pub created: bool,
    /// What was written through it.
    pub work: Arc<Work>,
}

/// The default store: `file://` under the user's data directory.
///
/// # Errors
/// When the user has no home directory.
pub fn default_store() -> Result<String> {
    let data = user_directory("XDG_DATA_HOME", ".local/share")?;
    Ok(format!("file://{}", data.join("ckptfs/store").display()))
}

fn user_directory(variable: &str, below_home: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os(variable).map(PathBuf::from).filter(|d| d.is_absolute()) {
        return Ok(dir);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|d| d.is_absolute());
    home.map(|h| h.join(below_home)).ok_or_else(|| {
        Error::new(
            Kind::Invalid,
            format!("neither {variable} nor HOME is set: name the store and the cache with --store and --cache"),
        )
    })
}

/// The default cache: the user's own one where it is on the same device as `near`, else one at the top of that device, else one beside `near`.
///
/// # Errors
/// When the user has no home directory.
pub fn default_cache(near: Option<&Path>) -> Result<PathBuf> {
    let own = user_directory("XDG_CACHE_HOME", ".cache")?.join("ckptfs");
    let Some(near) = near.and_then(|n| std::fs::canonicalize(n).ok()) else { return Ok(own) };
    let device = |p: &Path| {
        let existing = p.ancestors().find(|a| a.exists())?;
        Dir::open(existing).ok()?.stat_self().ok().map(|s| s.dev)
    };
    let wanted = device(&near);
    if wanted.is_none() || device(&own) == wanted {
        return Ok(own);
    }
    let name = format!(".ckptfs-cache-{}", process::euid());
    let writable = |dir: &Path| Dir::open(dir).and_then(|d| d.stat_self()).is_ok_and(|s| process::may_write(&s));
    // The top of the device serves every directory on it; one that only root may write does not.
    let top = near.ancestors().take_while(|a| device(a) == wanted).last();
    let parent = near.parent().filter(|p| device(p) == wanted);
    let home = top.filter(|t| t.join(&name).exists() || writable(t)).or_else(|| parent.filter(|p| writable(p)));
    Ok(home.map_or(own, |h| h.join(name)))
}

impl Session {
    /// Opens both.
    ///
    /// # Errors
    /// When the store is not one, cannot be reached, or does not keep its promises; when the cache cannot be used.
    pub fn open(options: &SessionOptions) -> Result<Self> {
        let store = unidentified_store(options)?;
        let found = found(&store, options.create)?;
        let path = match &options.cache {
            Some(path) => path.clone(),
            None => default_cache(options.near.as_deref())?,
        };
        Self::of(store, found, &path)
    }

    /// Opens another store over the same cache: what the cache has, it has by digest, for whichever store.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn beside(&self, options: &SessionOptions) -> Result<Self> {
        let store = unidentified_store(options)?;
        self.beside_store(store, options.create)
    }

    /// The same with a store that is open: for programs that bring their own backend.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn beside_store(&self, store: Store, create: bool) -> Result<Self> {
        let found = found(&store, create)?;
        let cache = self.cache.clone();
        let (identity, cache, created) = match found {
            Some(identity) => (identity, cache, false),
            None => create_both(&store, || Ok(cache))?,
        };
        Ok(Self::with(store, identity, cache, created))
    }

    /// Opens a cache beside a store that is open: for programs that bring their own backend.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn over(store: Store, cache: &Path, create: bool) -> Result<Self> {
        let found = found(&store, create)?;
        Self::of(store, found, cache)
    }

    fn of(store: Store, found: Option<StoreIdentity>, cache: &Path) -> Result<Self> {
        let (identity, cache, created) = match found {
            Some(identity) => (identity, Cache::open(cache, CacheOptions { create: true })?, false),
            None => {
                match Cache::open(cache, CacheOptions { create: false }) {
                    Err(e) if e.kind() != Kind::NotFound => return Err(e.into()),
                    _ => {}
                }
                create_both(&store, || Ok(Cache::open(cache, CacheOptions { create: true })?))?
            }
        };
        Ok(Self::with(store, identity, cache, created))
    }

    fn with(store: Store, identity: StoreIdentity, cache: Cache, created: bool) -> Self {
        Self {
            catalog: Catalog::new(store.clone()),
            store,
            store_id: identity.id,
            blocks_writing: identity.blocks_writing,
            cache,
            created,
            work: Arc::default(),
        }
    }

    /// Checks that this version may write: enough for records whose names are theirs alone, such as pins, which no race decides.
    ///
    /// # Errors
    /// When a newer version forbids it.
    pub fn may_write(&self) -> Result<()> {
        Ok(lifecycle::identity::may_write(&self.blocks_writing)?)
    }

    /// Checks, before anything is written, that this version may write and that the store decides races. The race is run once per cache and store.
    ///
    /// # Errors
    /// When a newer version forbids it, or the store lets two creators win.
    pub fn ready_to_write(&self) -> Result<()> {
        self.may_write()?;
        if !self.cache.is_probed(self.store_id)? {
            self.store.probe()?;
            self.cache.set_probed(self.store_id)?;
        }
        Ok(())
    }

    /// Takes the lock of who copies checkpoints of a job into this store.
    ///
    /// # Errors
    /// When another process holds it.
    pub fn copy_lock(&self, job: &Name) -> Result<crate::local::lock::FileLock> {
        self.cache.copy_lock(job, self.store_id)?.ok_or_else(|| {
            let (url, cache) = (self.store.url(), self.cache.path().display());
            let why =
                format!("another process copies checkpoints of job {job} to {url} with the cache {cache}: wait for it");
            Error::new(Kind::Conflict, why)
        })
    }

    /// Takes the writer's lock for a job.
    ///
    /// # Errors
    /// When another process holds it.
    pub fn writer_lock(&self, job: &Name) -> Result<crate::local::lock::FileLock> {
        self.cache.job_lock(job)?.ok_or_else(|| {
            Error::new(
                Kind::Conflict,
                format!(
                    "another process takes a checkpoint of job {job} with the cache {}: wait for it, or use another cache",
                    self.cache.path().display()
                ),
            )
        })
    }
}

/// Opens an existing store without a cache, for verbs that only read metadata.
///
/// # Errors
/// As [`Session::open`].
pub fn open_store(options: &SessionOptions) -> Result<Store> {
    let store = unidentified_store(options)?;
    found(&store, false)?;
    Ok(store)
}

/// Opens the place of a store without asking what lies there.
///
/// # Errors
/// When the URL or the key file cannot be used.
pub fn unidentified_store(options: &SessionOptions) -> Result<Store> {
    let url = match &options.store {
        Some(url) => url.clone(),
        None => default_store()?,
    };
    let store_options = StoreOptions {
        allow_unsafe_file_system: options.allow_unsafe_file_system,
        keys: options.key_file.as_deref().map(key_ring).transpose()?,
        rates: options.rates,
        environment: options.environment,
        ..StoreOptions::default()
    };
    Ok(Store::open(&url, store_options)?)
}

/// The keys of a key file.
///
/// # Errors
/// When others may read it, or it holds something else.
pub fn key_ring(path: &Path) -> Result<KeyRing> {
    let bytes = crate::local::private::read(path, limits::KEY_FILE_LEN)?;
    KeyRing::parse(&bytes).map_err(|e| {
        let what = format!(
            "cannot use the key file {}: {e}. Make one: (umask 077; openssl rand -hex 32 > FILE)",
            path.display()
        );
        Error::with_source(Kind::Invalid, what, e)
    })
}

/// The store's identity; nothing where there is no store and one may be created.
fn found(store: &Store, create: bool) -> Result<Option<StoreIdentity>> {
    match lifecycle::identify(store) {
        Ok(identity) => Ok(Some(identity)),
        Err(LifecycleError::NotAStore { .. }) if create => Ok(None),
        Err(e @ LifecycleError::Format { .. }) => {
            let e = Error::from(e);
            let remedy = match e.kind() {
                Kind::Damage => {
                    ": this is no ckptfs store, or its record was damaged; name another place, or bring ckptfs.json back from a copy"
                }
                _ => "",
            };
            Err(Error::with_source(e.kind(), format!("{}: {}{remedy}", store.url(), e.message()), e))
        }
        Err(e) => Err(e.into()),
    }
}

/// Creates a store, and its first cache where that is missing. Whatever may refuse is asked first, so that a refusal leaves neither behind:
/// a cache that cannot be used, a place that holds other things, a store that lets two creators win.
fn create_both(store: &Store, cache: impl FnOnce() -> Result<Cache>) -> Result<(StoreIdentity, Cache, bool)> {
    if store.looks_foreign()? {
        return Err(LifecycleError::NotOurs { url: store.url().to_owned() }.into());
    }
    store.create_root()?;
    store.probe()?;
    let cache = cache()?;
    let fresh = Uid::random().map_err(|e| Error::with_source(Kind::Other, "no randomness", e))?;
    let identity = lifecycle::identity::create(store, fresh)?;
    cache.set_probed(identity.id)?;
    let created = identity.id == fresh;
    Ok((identity, cache, created))
}
