//! Files that another program wrote, read where they lie: in a directory, or in a bucket. Nothing here writes, and no name is ours.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path as LocalPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::time::timeout;

use super::error::{Result, StoreError, explain};
use super::location::Location;
use super::object::refused_with;
use super::options::StoreOptions;
use super::pace::Pacer;
use super::runtime::runtime;
use super::text;
use crate::local::own_mount;
use crate::metrics::Counter;
use crate::types::Digest;

/// Most bytes of one request: what is asked for at once is in memory at once.
const PIECE: u64 = 8 << 20;

/// A file that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Where it is.
    pub url: SourceUrl,
    /// Its length in bytes.
    pub size: u64,
    /// Changes when the file does: a bucket's ETag, or a local file's inode and times.
    pub version: String,
    /// The ETag, where there is one: a read of another version is refused.
    tag: Option<String>,
}

/// Bytes that lie in a source, or that came with what named them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// They came along.
    Here(Bytes),
    /// A part of a file.
    There {
        /// The file.
        file: SourceFile,
        /// Where it begins, in bytes.
        offset: u64,
        /// Its length in bytes.
        length: u64,
    },
}

impl Piece {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::Here(bytes) => bytes.len() as u64,
            Self::There { length, .. } => *length,
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Identifies what lies elsewhere: place, range and version of the file. As long as they are the same, so are the bytes.
    #[must_use]
    pub fn origin(&self) -> Option<Digest> {
        let Self::There { file, offset, length } = self else { return None };
        let size = file.size;
        Some(Digest::of(format!("{}\n{size} {offset} {length}\n{}", file.url.spelled(), file.version).as_bytes()))
    }

    /// All of it.
    ///
    /// # Errors
    /// As [`Sources::read_into`].
    pub fn read(&self, sources: &Sources) -> Result<Bytes> {
        match self {
            Self::Here(bytes) => Ok(bytes.clone()),
            Self::There { file, offset, length } => sources.read(file, *offset, *length),
        }
    }
}

/// One level of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceListing {
    /// Its files, by name.
    pub files: Vec<SourceFile>,
    /// Its directories, by name.
    pub directories: Vec<SourceUrl>,
}

/// A place in a source: `file:///path`, `s3://bucket/path`. Unlike a store's URL it is taken as it is spelled: nothing in it is decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceUrl {
    /// `file://` or `s3://bucket`.
    root: String,
    /// Begins with a slash, and does not end with one unless it is one.
    path: String,
}

impl SourceUrl {
    /// Reads a URL or a local path; `file:/path`, as Java spells it, too.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(given: &str) -> Result<Self> {
        let invalid = |why: &str| StoreError::Invalid { object: text::without_secrets(given), why: why.to_owned() };
        if given.is_empty() {
            return Err(invalid("it is empty"));
        }
        if let Some(rest) = given.strip_prefix("file:") {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            return if path.starts_with('/') {
                Ok(Self { root: "file://".to_owned(), path: plain(path) })
            } else {
                Err(invalid("a file URL has an absolute path: file:///path"))
            };
        }
        if let Some((scheme, rest)) = given.split_once("://") {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            // One store to us, several drivers to Hadoop.
            let scheme = if matches!(scheme, "s3a" | "s3p" | "s3n") { "s3" } else { scheme };
            return Ok(Self { root: format!("{scheme}://{host}"), path: plain(path) });
        }
        let absolute = std::path::absolute(given).map_err(|e| invalid(&format!("it is not a path: {e}")))?;
        let path = absolute.to_str().ok_or_else(|| invalid("it is not UTF-8"))?;
        Ok(Self { root: "file://".to_owned(), path: plain(path) })
    }

    /// The whole of it: identifies the place. Messages take `Display`, which leaves out what may be secret.
    #[must_use]
    pub fn spelled(&self) -> String {
        format!("{}{}", self.root, self.path)
    }

    /// The last component.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The components of its path.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').filter(|c| !c.is_empty())
    }

    /// The directory that it lies in; nothing above the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (above, name) = self.path.rsplit_once('/')?;
        (!name.is_empty()).then(|| Self { root: self.root.clone(), path: plain(above) })
    }

    /// What lies below it, by a relative path.
    #[must_use]
    pub fn join(&self, below: &str) -> Self {
        Self { root: self.root.clone(), path: plain(&format!("{}/{below}", self.path)) }
    }

    /// What follows this prefix, by whole components.
    #[must_use]
    pub fn below<'a>(&'a self, prefix: &Self) -> Option<&'a str> {
        if self.root != prefix.root {
            return None;
        }
        let rest = self.path.strip_prefix(prefix.path.trim_end_matches('/'))?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

impl std::fmt::Display for SourceUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&text::without_secrets(&format!("{}{}", self.root, self.path)))
    }
}

/// Text that somebody else wrote, for a message: without what may be secret, in one line.
#[must_use]
pub fn shown(text: &str) -> String {
    text::without_secrets(text)
}

/// Without empty components and dots: `..` never leads above the root.
fn plain(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(out.pop()),
            part => out.push(part),
        }
    }
    format!("/{}", out.join("/"))
}

/// The sources that a program reads, opened when they are first named.
#[derive(Debug, Default)]
pub struct Sources {
    /// Bytes that were read.
    pub bytes_read: Counter,
    options: StoreOptions,
    fetching: Pacer,
    buckets: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
}

impl Sources {
    /// With a store's options.
    #[must_use]
    pub fn new(options: StoreOptions) -> Self {
        Self { fetching: Pacer::new(options.rates.fetch), options, ..Self::default() }
    }

    fn bucket(&self, url: &SourceUrl) -> Result<Arc<dyn ObjectStore>> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get(&url.root) {
            return Ok(Arc::clone(bucket));
        }
        let bucket = Location::parse(&url.root)?.bucket(&self.options)?;
        buckets.insert(url.root.clone(), Arc::clone(&bucket));
        Ok(bucket)
    }

    /// Files and directories at one level; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn list(&self, url: &SourceUrl) -> Result<SourceListing> {
        let mut listing = if url.root == "file://" { list_directory(url)? } else { self.list_bucket(url)? };
        listing.files.sort_by(|a, b| a.url.cmp(&b.url));
        listing.directories.sort();
        Ok(listing)
    }

    fn list_bucket(&self, url: &SourceUrl) -> Result<SourceListing> {
        let bucket = self.bucket(url)?;
        let path = key(url)?;
        let found = self.ask("list", url, 0, bucket.list_with_delimiter(Some(&path)))?;
        let at = |path: &Path| SourceUrl { root: url.root.clone(), path: plain(path.as_ref()) };
        let file = |meta: ObjectMeta| in_bucket(at(&meta.location), meta);
        Ok(SourceListing {
            files: found.objects.into_iter().map(file).collect(),
            directories: found.common_prefixes.iter().map(at).collect(),
        })
    }

    /// What one file is; nothing when there is none.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn look(&self, url: &SourceUrl) -> Result<Option<SourceFile>> {
        if url.root == "file://" {
            return look_at_file(url);
        }
        let bucket = self.bucket(url)?;
        let path = key(url)?;
        match self.ask("look at", url, 0, async { bucket.head(&path).await }) {
            Ok(meta) => Ok(Some(in_bucket(url.clone(), meta))),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether a place lies below another one, wherever symbolic links lead. What is not there is nowhere.
    #[must_use]
    pub fn is_inside(&self, url: &SourceUrl, directory: &SourceUrl) -> bool {
        if url.root != "file://" || directory.root != "file://" {
            return url.below(directory).is_some();
        }
        let real = |url: &SourceUrl| fs::canonicalize(&url.path).ok();
        let (Some(parent), Some(directory)) = (url.parent().as_ref().and_then(real), real(directory)) else {
            return false;
        };
        parent.starts_with(directory)
    }

    /// Reads a part of a file, piece by piece.
    ///
    /// # Errors
    /// When it cannot be read, is shorter, or is another one than was seen; when the receiver fails.
    pub fn read_into(
        &self,
        file: &SourceFile,
        offset: u64,
        length: u64,
        sink: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<()> {
        let url = &file.url;
        let local = if url.root == "file://" { Some(open_seen(file)?) } else { None };
        let mut at = offset;
        let end = offset.saturating_add(length);
        while at < end {
            let piece = PIECE.min(end - at);
            let bytes = match &local {
                Some(file) => read_piece(file, url, at, piece)?,
                None => {
                    let (bucket, path) = (self.bucket(url)?, key(url)?);
                    self.fetching.take(piece);
                    let options = GetOptions::new().with_range(Some(at..at + piece)).with_if_match(file.tag.clone());
                    self.ask("read", url, piece, async { bucket.get_opts(&path, options).await?.bytes().await })?
                }
            };
            if bytes.len() as u64 != piece {
                let why = format!("it ends at {} instead of {end}", at + bytes.len() as u64);
                return Err(StoreError::Damaged { object: url.to_string(), why });
            }
            self.bytes_read.add(piece);
            sink(&bytes).map_err(|source| StoreError::Sink { object: url.to_string(), source })?;
            at += piece;
        }
        match local {
            Some(local) => is_still(file, &local),
            None => Ok(()),
        }
    }

    /// A part of a file.
    ///
    /// # Errors
    /// As [`Sources::read_into`].
    pub fn read(&self, file: &SourceFile, offset: u64, length: u64) -> Result<Bytes> {
        let mut whole = Vec::new();
        self.read_into(file, offset, length, &mut |piece| {
            whole.try_reserve(piece.len()).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
            whole.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(whole.into())
    }

    fn ask<T>(
        &self,
        what: &'static str,
        url: &SourceUrl,
        bytes: u64,
        request: impl Future<Output = std::result::Result<T, Error>>,
    ) -> Result<T> {
        let limit = self.options.attempt_limit(bytes);
        runtime()?.block_on(async {
            match timeout(limit, request).await {
                Ok(answer) => answer.map_err(|e| classify(what, url, &e)),
                Err(_) => Err(silent(what, url, "no answer".to_owned(), limit)),
            }
        })
    }
}

fn silent(what: &'static str, url: &SourceUrl, why: String, waited: Duration) -> StoreError {
    StoreError::Unavailable { what, object: url.to_string(), why, waited }
}

fn classify(what: &'static str, url: &SourceUrl, error: &Error) -> StoreError {
    let (object, why) = (url.to_string(), explain(error));
    match error {
        Error::NotFound { .. } => StoreError::NotFound { what, object, why },
        Error::Precondition { .. } => changed(url),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Permission { what, object, why },
        Error::InvalidPath { .. } | Error::NotSupported { .. } => StoreError::Invalid { object, why },
        _ => match refused_with(&why) {
            Some(404) => StoreError::NotFound { what, object, why },
            Some(401 | 403) => StoreError::Permission { what, object, why },
            Some(412) => changed(url),
            Some(416) => StoreError::Damaged { object, why: format!("it is shorter than it should be ({why})") },
            Some(_) => StoreError::Invalid { object, why },
            None => silent(what, url, why, Duration::ZERO),
        },
    }
}

fn key(url: &SourceUrl) -> Result<Path> {
    Path::parse(url.path.trim_start_matches('/'))
        .map_err(|e| StoreError::Invalid { object: url.to_string(), why: format!("it is no key: {}", explain(&e)) })
}

fn in_bucket(url: SourceUrl, meta: ObjectMeta) -> SourceFile {
    let version = meta.e_tag.clone().unwrap_or_else(|| meta.last_modified.to_rfc3339());
    SourceFile { url, size: meta.size, version, tag: meta.e_tag }
}

/// Opens a file that was seen; it must still be that one, and no link.
fn open_seen(file: &SourceFile) -> Result<File> {
    let opened = File::options().read(true).custom_flags(own_mount::NO_FOLLOW).open(LocalPath::new(&file.url.path));
    let opened = opened.map_err(|e| failed("read", &file.url, e))?;
    is_still(file, &opened)?;
    Ok(opened)
}

fn is_still(file: &SourceFile, opened: &File) -> Result<()> {
    let now = seen(file.url.clone(), &opened.metadata().map_err(|e| failed("look at", &file.url, e))?);
    if now == *file { Ok(()) } else { Err(changed(&file.url)) }
}

fn changed(url: &SourceUrl) -> StoreError {
    StoreError::Damaged { object: url.to_string(), why: "it is another file than it was a moment ago".to_owned() }
}

fn failed(what: &'static str, url: &SourceUrl, e: std::io::Error) -> StoreError {
    let (object, why) = (url.to_string(), e.to_string());
    match e.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => StoreError::NotFound { what, object, why },
        std::io::ErrorKind::PermissionDenied => StoreError::Permission { what, object, why },
        _ => StoreError::Source { object, source: e },
    }
}

fn seen(url: SourceUrl, meta: &fs::Metadata) -> SourceFile {
    // The change time too: who writes into a file can set the other one back.
    let times = (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    let version = format!("{:x}-{:x}-{:x}.{:x}-{:x}.{:x}", meta.dev(), meta.ino(), times.0, times.1, times.2, times.3);
    SourceFile { url, size: meta.len(), version, tag: None }
}

fn look_at_file(url: &SourceUrl) -> Result<Option<SourceFile>> {
    match fs::symlink_metadata(&url.path) {
        Ok(meta) => Ok(meta.is_file().then(|| seen(url.clone(), &meta))),
        Err(e) => match failed("look at", url, e) {
            StoreError::NotFound { .. } => Ok(None),
            e => Err(e),
        },
    }
}

fn list_directory(url: &SourceUrl) -> Result<SourceListing> {
    let mut listing = SourceListing::default();
    let entries = match fs::read_dir(PathBuf::from(&url.path)) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(listing),
        Err(e) => return Err(failed("list", url, e)),
    };
    for entry in entries {
        let entry = entry.map_err(|e| failed("list", url, e))?;
        // Nothing refers to a name that is not text.
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let below = url.join(&name);
        // A symbolic link is neither: it could lead anywhere.
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => listing.directories.push(below),
            Ok(meta) if meta.is_file() => listing.files.push(seen(below, &meta)),
            Ok(_) => {}
            // Deleted since: it is not there.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed("look at", &below, e)),
        }
    }
    Ok(listing)
}

fn read_piece(file: &File, url: &SourceUrl, offset: u64, length: u64) -> Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, offset).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => StoreError::Damaged {
            object: url.to_string(),
            why: format!("it ends before byte {}", offset.saturating_add(length)),
        },
        _ => failed("read", url, e),
    })?;
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_javas_and_ours() {
        let parse = |text: &str| SourceUrl::parse(text).unwrap();
        for (text, shown) in [
            ("file:/a/b", "file:///a/b"),
            ("file:///a/b/", "file:///a/b"),
            ("/a//b/./c/../d", "file:///a/b/d"),
            ("/../..", "file:///"),
            ("s3a://bucket/a", "s3://bucket/a"),
            ("s3://bucket", "s3://bucket/"),
            ("hdfs://name:8020/a b", "hdfs://name:8020/a b"),
        ] {
            assert_eq!(parse(text).to_string(), shown);
        }
        for bad in ["", "file:a", "file:"] {
            assert!(SourceUrl::parse(bad).is_err(), "{bad}");
        }
        let file = parse("file:/x/checkpoints/j/shared/f");
        assert_eq!(file.name(), "f");
        assert_eq!(file.below(&parse("/x/checkpoints")), Some("j/shared/f"));
        assert_eq!(file.below(&parse("/x/check")), None);
        assert_eq!(file.below(&parse("/")), Some("x/checkpoints/j/shared/f"));
        assert_eq!(file.below(&parse("s3://x")), None);
        assert_eq!(file.parent().unwrap().to_string(), "file:///x/checkpoints/j/shared");
        assert_eq!(parse("/").parent(), None);
        assert!(!parse("s3://user:secret@bucket/a").to_string().contains("secret"));
    }

    #[test]
    fn a_directory_is_listed_and_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), b"hello").unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        let sources = Sources::default();
        let url = SourceUrl::parse(dir.path().to_str().unwrap()).unwrap();
        let listing = sources.list(&url).unwrap();
        assert_eq!(listing.directories, [url.join("a")]);
        assert_eq!((listing.files.len(), listing.files[0].size), (1, 5));
        assert_eq!(sources.look(&url.join("b")).unwrap().unwrap(), listing.files[0]);
        assert_eq!(sources.look(&url.join("a")).unwrap(), None);
        assert_eq!(sources.look(&url.join("c/d")).unwrap(), None);
        let file = &listing.files[0];
        assert_eq!(sources.read(file, 1, 3).unwrap(), "ell");
        assert!(matches!(sources.read(file, 1, 5), Err(StoreError::Damaged { .. })));
        // A link leads nowhere, and another file in its place is not it.
        std::os::unix::fs::symlink("b", dir.path().join("link")).unwrap();
        assert_eq!(sources.look(&url.join("link")).unwrap(), None);
        assert_eq!(sources.list(&url).unwrap().files.len(), 1);
        fs::rename(dir.path().join("b"), dir.path().join("c")).unwrap();
        assert!(matches!(sources.read(file, 0, 1), Err(StoreError::NotFound { .. })));
        fs::write(dir.path().join("b"), b"HELLO").unwrap();
        assert!(matches!(sources.read(file, 0, 1), Err(StoreError::Damaged { .. })));
        std::os::unix::fs::symlink("/etc", dir.path().join("a/etc")).unwrap();
        assert!(sources.is_inside(&url.join("a/x"), &url));
        assert!(!sources.is_inside(&url.join("a/etc/passwd"), &url));
        assert!(!sources.is_inside(&url.join("nowhere/x"), &url));
        fs::remove_file(dir.path().join("c")).unwrap();
        assert_eq!(sources.list(&url.join("c")).unwrap(), SourceListing::default());
    }
}
