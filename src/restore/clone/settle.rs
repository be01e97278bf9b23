//! Settle: a clone's symbolic links become local files, while its database runs or not. After it, the clone needs neither the mount nor its
//! pin.
//!
//! ```text
//! link 000007.sst -> <mount>/app/chk-42/db/0/db/000007.sst
//!   the file is brought beside it, verified:   .ckptfs-settle-000007.sst
//!   both change places in one step             (RocksDB deleted the link meanwhile: nothing happens, the file goes)
//!   what has the other name now must be that link: it goes
//! ```
//!
//! A database that has the file open reads on through the mount; opened anew it is the local one, with the same bytes. Killed in between,
//! it leaves a file that RocksDB and snapshots pass over, and that the next settle takes away.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::plan::linkable;
use super::{Amount, Owner, build};
use crate::cache::Session;
use crate::error::{Error, Kind, Result};
use crate::format::SubtaskEntry;
use crate::format::clone::{CloneMark, SETTLING};
use crate::lifecycle::driver;
use crate::lifecycle::pin::{PinRef, Unpin};
use crate::local::dir::{Dir, Exchanged};
use crate::local::{FileKind, clone_mark};
use crate::restore::layout::{Laid, Layout};
use crate::restore::select::task_manifest;
use crate::types::Progress;

/// What settling came to.
#[derive(Debug, Clone)]
pub struct SettleReport {
    /// Files that are hard links of the cache's now.
    pub linked: Amount,
    /// Files that are copies now.
    pub copied: Amount,
    /// Links that RocksDB deleted meanwhile.
    pub deleted: u64,
    /// Links that lead elsewhere: somebody else made them, and they stay.
    pub foreign: Vec<PathBuf>,
    /// Whether the clone needs its mount no more, and its pin was taken away.
    pub settled: bool,
    /// Seconds.
    pub seconds: f64,
}

impl SettleReport {
    fn begun(begun: Instant) -> Self {
        Self {
            linked: Amount::default(),
            copied: Amount::default(),
            deleted: 0,
            foreign: Vec::new(),
            settled: false,
            seconds: begun.elapsed().as_secs_f64(),
        }
    }
}

/// A link of the clone, and the file that it stands for.
struct Link<'a> {
    laid: &'a Laid,
    target: PathBuf,
}

enum Done {
    Linked(u64),
    Copied(u64),
    Deleted,
}

/// Brings every file of a clone that is a symbolic link into a mount, and puts it in the link's place.
///
/// # Errors
/// When the directory is no clone of this store, its checkpoint is gone, bytes cannot be had or are not what they should be, or the disk is
/// full. What was brought before stays, and the rest are links as before.
pub fn settle(session: &Session, directory: &Path, progress: &dyn Progress) -> Result<SettleReport> {
    let begun = Instant::now();
    let root = Dir::open(directory)?;
    let mark = mark_of(session, &root, directory)?;
    let Some(_lock) = root.try_lock()? else {
        return Err(Error::new(Kind::Conflict, format!("{}: another process settles this clone", directory.display())));
    };
    session.may_write()?;
    let mut links = Vec::new();
    links_of(&root, Path::new(""), &HashMap::new(), &mut links)?;
    if links.is_empty() {
        // Settled before, perhaps long ago: its checkpoint may be gone by now.
        driver::run(&session.store, Unpin::new(vec![PinRef::from(&mark)]))?;
        return Ok(SettleReport { settled: true, ..SettleReport::begun(begun) });
    }
    let stat = root.stat_self()?;
    let owner = Owner::there(&stat, directory)?;
    progress.phase("plan");
    let checkpoint = session.catalog.checkpoint(&mark.job, mark.number)?;
    if checkpoint.uid != mark.uid {
        let (job, number) = (&mark.job, mark.number);
        let why = format!("{job}/{number} is another checkpoint than the one that it was cloned from");
        return Err(Error::new(Kind::Conflict, format!("{}: {why}", directory.display())));
    }
    let subtasks: Vec<&SubtaskEntry> = checkpoint.manifest.subtasks.iter().collect();
    let layouts = if mark.databases.iter().any(String::is_empty) {
        // The files of one subtask's database lie at the top. Which subtask it was, the links tell.
        driver::parallel(subtasks, |subtask| {
            let manifest = task_manifest(session, &checkpoint, subtask)?;
            Ok::<_, Error>(Layout::database(&checkpoint, subtask, &manifest))
        })?
    } else {
        vec![Layout::of(session, &checkpoint, &subtasks)?]
    };
    let mut laid: HashMap<&Path, Vec<&Laid>> = HashMap::new();
    for file in layouts.iter().flat_map(|layout| &layout.files) {
        laid.entry(&file.below).or_default().push(file);
    }
    let mut foreign = Vec::new();
    let links = links_of(&root, Path::new(""), &laid, &mut foreign)?;
    let bytes = links.iter().fold(0_u64, |sum, link| sum.saturating_add(link.laid.file.size));
    progress.plan(links.len() as u64, bytes);
    progress.phase("fetch");
    let mut homes: Vec<PathBuf> = links.iter().filter_map(|l| l.laid.below.parent().map(Path::to_owned)).collect();
    homes.sort();
    homes.dedup();
    let done = driver::parallel(links, |link| {
        let done = bring(session, &root, &link, owner)?;
        progress.advance(link.laid.file.size);
        Ok::<_, Error>(done)
    })?;
    for home in &homes {
        below(&root, home)?.sync()?;
    }
    // A RocksDB checkpoint below it may have linked the links meanwhile.
    foreign.clear();
    let left = links_of(&root, Path::new(""), &laid, &mut foreign)?;
    foreign.extend(left.into_iter().map(|link| link.laid.below.clone()));
    let mut report = SettleReport { settled: foreign.is_empty(), foreign, ..SettleReport::begun(begun) };
    for done in done {
        match done {
            Done::Linked(bytes) => report.linked.add(bytes),
            Done::Copied(bytes) => report.copied.add(bytes),
            Done::Deleted => report.deleted += 1,
        }
    }
    if report.settled {
        // Its note stays: a native checkpoint of the clone is known by it, and its blobs are still the checkpoint's.
        driver::run(&session.store, Unpin::new(vec![PinRef::from(&mark)]))?;
    }
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

fn mark_of(session: &Session, root: &Dir, directory: &Path) -> Result<CloneMark> {
    let shown = directory.display();
    let mark = clone_mark::of(root)?.ok_or_else(|| {
        let why = "it is no clone that `ckptfs restore` made: name the directory that was given to it";
        Error::new(Kind::Invalid, format!("{shown}: {why}"))
    })?;
    if mark.store != session.store_id {
        let why = format!("it is a clone of another store than {}: name that one with --store", session.store.url());
        return Err(Error::new(Kind::Invalid, format!("{shown}: {why}")));
    }
    Ok(mark)
}

/// A directory below the clone.
fn below(root: &Dir, path: &Path) -> Result<Dir> {
    Ok(if path.as_os_str().is_empty() { root.try_clone()? } else { root.sub_path(path)? })
}

/// The links of a directory and all below it. What an earlier settle left half-made is taken away.
fn links_of<'a>(
    root: &Dir,
    at: &Path,
    laid: &HashMap<&Path, Vec<&'a Laid>>,
    foreign: &mut Vec<PathBuf>,
) -> Result<Vec<Link<'a>>> {
    let dir = below(root, at)?;
    let mut found = Vec::new();
    for entry in dir.list()? {
        let path = at.join(&entry.name);
        if entry.name.to_str().is_some_and(|n| n.starts_with(SETTLING)) {
            dir.remove(&entry.name)?;
        } else if entry.kind == FileKind::Dir {
            found.extend(links_of(root, &path, laid, foreign)?);
        } else if entry.kind == FileKind::Symlink {
            let Ok(target) = dir.read_link(&entry.name) else { continue };
            // `<mount>/<job>/chk-N/...`, whatever the mount's place was.
            let ours = laid.get(path.as_path()).and_then(|l| l.iter().find(|l| target.ends_with(&l.mounted)));
            match ours {
                Some(laid) => found.push(Link { laid, target }),
                None => foreign.push(path),
            }
        }
    }
    Ok(found)
}

/// Brings one file and puts it in its link's place.
fn bring(session: &Session, root: &Dir, link: &Link<'_>, owner: Owner) -> Result<Done> {
    let laid = link.laid;
    let home = laid.home(root)?;
    let name = laid.name();
    let mut beside = std::ffi::OsString::from(SETTLING);
    beside.push(name);
    home.remove(&beside)?;
    let linked = match linkable_from_cache(session, laid, &home, owner)? {
        true => build::link(session, laid, &home, &beside)?,
        false => false,
    };
    if !linked {
        build::copy(session, laid, &home, &beside)?;
        owner.adopt(&home, &beside)?;
    }
    // Another link or a file there is none of ours.
    let link_itself = |dir: &Dir, name: &std::ffi::OsStr| dir.read_link(name).is_ok_and(|t| t == link.target);
    let exchanged = home.exchange(&beside, name, link_itself)?;
    // The link, or our file where the link is gone.
    home.remove(&beside)?;
    Ok(match exchanged {
        Exchanged::Yes if linked => Done::Linked(laid.file.size),
        Exchanged::Yes => Done::Copied(laid.file.size),
        Exchanged::Gone | Exchanged::Another => Done::Deleted,
    })
}

/// Fetches the file into the cache, where a link of it can be had.
fn linkable_from_cache(session: &Session, laid: &Laid, home: &Dir, owner: Owner) -> Result<bool> {
    if session.cache.uid() != owner.uid || session.cache.device() != home.stat_self()?.dev {
        return Ok(false);
    }
    // A cache that is too small for it is no reason to fail: it is copied then.
    if session.cache.limits().size.is_some_and(|size| size < laid.file.size) {
        return Ok(false);
    }
    let file = match session.cache.fetch_file(&session.store, &laid.manifest, &laid.file) {
        Ok(file) => file,
        Err(e) if e.is_no_space() => return Ok(false),
        Err(e) => return Err(e.into()),
    };
    linkable(&file, home, owner, &mut Some(true))
}
