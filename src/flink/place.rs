//! Where files are that a `_metadata` names. It names them by where they were when it was written; the tree may have been moved since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::FlinkError;
use super::metadata::StreamHandle;
use crate::error::{Error, Kind, Result};
use crate::store::source::shown;
use crate::store::{SourceFile, SourceUrl, Sources, StoreError};

/// So many last components of a name are looked for below the checkpoint's job, where nothing else says what was moved where.
const GUESSED: std::ops::RangeInclusive<usize> = 1..=5;

/// What stands for a prefix of absolute names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    from: SourceUrl,
    to: SourceUrl,
}

impl Rewrite {
    /// Reads `FROM=TO`.
    ///
    /// # Errors
    /// When it is not two places.
    pub fn parse(text: &str) -> Result<Self> {
        let parts = text.split_once('=').filter(|(from, to)| !from.is_empty() && !to.is_empty());
        let Some((from, to)) = parts else {
            let text = shown(text);
            return Err(Error::new(Kind::Invalid, format!("{text:?} is not FROM=TO, two URLs or absolute paths")));
        };
        Ok(Self { from: SourceUrl::parse(from)?, to: SourceUrl::parse(to)? })
    }
}

/// Finds the files of one checkpoint.
#[derive(Debug)]
pub struct Resolver<'a> {
    sources: &'a Sources,
    /// Where the `_metadata` is now.
    directory: SourceUrl,
    rewrites: &'a [Rewrite],
    /// Where the directory above the job's was when the `_metadata` was written, once a name said so.
    old_top: Mutex<Option<SourceUrl>>,
    listed: Mutex<HashMap<SourceUrl, Arc<HashMap<String, SourceFile>>>>,
    /// Directories whose files may be read, or not.
    allowed: Mutex<HashMap<SourceUrl, bool>>,
}

/// A file that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// It is there, and long enough.
    Found(SourceFile),
    /// It is not, for all that was tried.
    Missing {
        /// The name that stands in the `_metadata`.
        name: String,
        /// What is wrong.
        why: String,
    },
}

impl<'a> Resolver<'a> {
    /// For the `_metadata` in this directory.
    #[must_use]
    pub fn new(sources: &'a Sources, directory: SourceUrl, rewrites: &'a [Rewrite]) -> Self {
        Self {
            sources,
            directory,
            rewrites,
            old_top: Mutex::default(),
            listed: Mutex::default(),
            allowed: Mutex::default(),
        }
    }

    /// The file behind a handle; nothing for one that has its bytes with it, or none. `grows`: others may have written to it since, as to
    /// the files of a changelog.
    ///
    /// # Errors
    /// When a directory cannot be listed. A file that is not there is no error.
    pub fn find(&self, handle: &StreamHandle, grows: bool) -> Result<Option<Lookup>> {
        let sized = |size: i64| match u64::try_from(size) {
            Ok(size) if grows => Wanted::AtLeast(size),
            _ => Wanted::Exactly(size),
        };
        let (name, wanted) = match handle {
            StreamHandle::Null | StreamHandle::Inline { .. } | StreamHandle::EmptySegment => return Ok(None),
            StreamHandle::KeyGroups(groups) => return self.find(&groups.stream, grows),
            StreamHandle::Relative { path, size } => {
                let lookup = self.first(path, vec![self.directory.join(path)], sized(*size))?;
                return Ok(Some(lookup));
            }
            StreamHandle::File { size, path } => (path, sized(*size)),
            StreamHandle::Segment { start, size, path, .. } => (path, Wanted::AtLeast(start.saturating_add(*size))),
        };
        let url = match SourceUrl::parse(name) {
            Ok(url) => url,
            Err(e) => return Ok(Some(Lookup::Missing { name: shown(name), why: e.to_string() })),
        };
        Ok(Some(self.first(name, self.candidates(&url), wanted)?))
    }

    /// Where a file may be, the likeliest first.
    fn candidates(&self, url: &SourceUrl) -> Vec<SourceUrl> {
        if let Some((rewrite, below)) = self.rewrites.iter().find_map(|r| Some((r, url.below(&r.from)?))) {
            return vec![rewrite.to.join(below)];
        }
        let job = self.directory.parent();
        let top = job.as_ref().and_then(SourceUrl::parent);
        let parts: Vec<&str> = url.components().collect();
        let mut out = Vec::new();
        // Within the checkpoint's own job: whatever the tree is called now, what is below the job is below it still.
        for (here, above) in [(job.as_ref(), top.as_ref()), (Some(&self.directory), job.as_ref())] {
            let (Some(here), Some(above)) = (here, above) else { continue };
            if let Some(at) = parts.iter().rposition(|part| *part == here.name())
                && at + 1 < parts.len()
            {
                out.push(above.join(&parts.get(at..).unwrap_or_default().join("/")));
                if Some(here) == job.as_ref() {
                    let levels = parts.len() - at;
                    let old = (0..levels).try_fold(url.clone(), |url, _| url.parent());
                    *self.old_top.lock().unwrap_or_else(PoisonError::into_inner) = old;
                }
            }
        }
        // Of another job beside it.
        let old_top = self.old_top.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let (Some(old), Some(top)) = (old_top, top.as_ref())
            && let Some(below) = url.below(&old)
        {
            out.push(top.join(below));
        }
        out.push(url.clone());
        for count in GUESSED.rev().filter(|count| *count <= parts.len()) {
            let tail = parts.get(parts.len() - count..).unwrap_or_default().join("/");
            out.extend(
                [top.as_ref(), job.as_ref(), Some(&self.directory)].into_iter().flatten().map(|d| d.join(&tail)),
            );
        }
        let mut seen = std::collections::HashSet::new();
        out.retain(|candidate| seen.insert(candidate.clone()));
        out
    }

    /// The directory that all files of a checkpoint lie below: the one above its job's, or above a savepoint.
    fn top(&self) -> SourceUrl {
        let above = |url: &SourceUrl| url.parent().unwrap_or_else(|| url.clone());
        let parent = above(&self.directory);
        if self.directory.name().starts_with("chk-") { above(&parent) } else { parent }
    }

    /// Whether a file may be read. A `_metadata` is somebody else's word: it must not make an importer that runs as root publish
    /// whatever it names.
    fn may_read(&self, url: &SourceUrl) -> bool {
        if self.rewrites.iter().any(|rewrite| *url == rewrite.to) {
            return true;
        }
        let Some(parent) = url.parent() else { return false };
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        *allowed.entry(parent).or_insert_with(|| {
            let mut places = std::iter::once(self.top()).chain(self.rewrites.iter().map(|rewrite| rewrite.to.clone()));
            places.any(|place| self.sources.is_inside(url, &place))
        })
    }

    fn first(&self, name: &str, candidates: Vec<SourceUrl>, wanted: Wanted) -> Result<Lookup> {
        let mut why = None;
        for candidate in candidates {
            if !self.may_read(&candidate) {
                if matches!(self.look(&candidate), Ok(Some(_))) {
                    why.get_or_insert_with(|| {
                        let (top, name) = (self.top(), shown(name));
                        format!("{candidate} lies outside of {top}: if it is meant, say --rewrite {name}={candidate}")
                    });
                }
                continue;
            }
            match self.look(&candidate) {
                Ok(Some(file)) if wanted.fits(file.size) => return Ok(Lookup::Found(file)),
                Ok(Some(file)) => {
                    why.get_or_insert_with(|| format!("{candidate} has {} bytes instead of {wanted}", file.size));
                }
                Ok(None) => {}
                Err(e @ StoreError::Permission { .. }) => {
                    why.get_or_insert(e.to_string());
                }
                // A file system of Flink's that is none of ours, such as hdfs.
                Err(StoreError::Invalid { why: told, .. }) => {
                    why.get_or_insert(told);
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(Lookup::Missing { name: shown(name), why: why.unwrap_or_else(|| "it is not there".to_owned()) })
    }

    /// A file, by a listing of its directory: a checkpoint has thousands in a few.
    fn look(&self, url: &SourceUrl) -> Result<Option<SourceFile>, StoreError> {
        let Some(parent) = url.parent() else { return Ok(None) };
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner).get(&parent).cloned();
        let listed = match listed {
            Some(listed) => listed,
            None => {
                let files = match self.sources.list(&parent) {
                    Ok(listing) => listing.files,
                    Err(StoreError::NotFound { .. }) => Vec::new(),
                    Err(e) => return Err(e),
                };
                let by_name = files.into_iter().map(|file| (file.url.name().to_owned(), file)).collect();
                let listed = Arc::new(by_name);
                self.listed.lock().unwrap_or_else(PoisonError::into_inner).insert(parent, Arc::clone(&listed));
                listed
            }
        };
        Ok(listed.get(url.name()).cloned())
    }
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// So many bytes; any number where Flink did not know.
    Exactly(i64),
    AtLeast(u64),
}

impl Wanted {
    fn fits(self, size: u64) -> bool {
        match self {
            Self::Exactly(wanted) => u64::try_from(wanted).is_ok_and(|wanted| wanted == size) || wanted < 0,
            Self::AtLeast(wanted) => size >= wanted,
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(size) => write!(f, "{size}"),
            Self::AtLeast(size) => write!(f, "at least {size}"),
        }
    }
}

/// The error of a `_metadata` that names what cannot be.
pub(super) fn impossible(why: String) -> FlinkError {
    FlinkError::Damaged { what: "a _metadata file", at: 0, why }
}
