//! Mends what can be mended without judgement, and only that:
//!
//! - a blob that is missing, short or damaged in the store, of which the cache has the very bytes: they are hashed again while they are
//!   sent. A blob is named by what it holds, and every reader compares it with its name, so that the old bytes served nobody. Its key
//!   carries the uploader's uid too, and a living checkpoint names it: no sweep that began before or begins now deletes it;
//! - a task manifest of which the cache has the bytes that the outcome names by digest;
//! - a cache entry, which is fetched anew.
//!
//! Object stores replace an object in one step; in a directory the new file is renamed over the old one. Everything else is left as it
//! is: no record is ever invented, and nothing is deleted.

use super::finding::{Finding, Object};
use super::read::Reader;
use super::records::manifest_of;
use super::references::{References, User, look_at};
use super::{Options, Report};
use crate::cache::{Examined, Session};
use crate::error::{Error, Kind, Result};
use crate::lifecycle::LifecycleError;
use crate::store::BlobSource;
use crate::types::{BlobName, Digest, Key, KeyParts, Progress};

/// Mends what it can of the findings, and notes it there.
pub(super) fn repair(
    session: &Session,
    references: &References<'_>,
    options: &Options,
    progress: &dyn Progress,
    report: &mut Report,
) -> Result<()> {
    progress.phase("repair");
    let mut ready = false;
    let mut findings = std::mem::take(&mut report.findings);
    // The store first: damaged entries are fetched from it.
    for finding in &mut findings {
        let mended = match finding.at.clone() {
            Object::Manifest(key, digest) => manifest(session, &key, &digest, &mut ready),
            Object::Stored(key) if finding.kind.is_damage() => match key.parts() {
                KeyParts::Blob(name) => blob(session, references, options, name, &mut ready, progress),
                _ => Ok(None),
            },
            Object::Stored(_) | Object::Said | Object::Cached(_) | Object::Strange => continue,
        };
        note(finding, mended)?;
    }
    for finding in &mut findings {
        if let Object::Cached(digest) = finding.at {
            note(finding, entry(session, references, &digest))?;
        }
    }
    report.findings = findings;
    Ok(())
}

/// What cannot be mended stays a finding; only a store that does not answer or may not be written ends the repair.
fn note(finding: &mut Finding, mended: Result<Option<String>>) -> Result<()> {
    match mended {
        Ok(mended) => finding.mended = mended,
        Err(e) if matches!(e.kind(), Kind::Unavailable | Kind::Permission | Kind::Newer | Kind::Unsupported) => {
            return Err(e.context(format!("cannot mend {}", finding.object)));
        }
        Err(e) => finding.detail = format!("{}; it could not be mended: {e}", finding.detail),
    }
    Ok(())
}

fn get_ready(session: &Session, ready: &mut bool) -> Result<()> {
    if !*ready {
        session.ready_to_write()?;
        *ready = true;
    }
    Ok(())
}

fn manifest(session: &Session, key: &Key, digest: &Digest, ready: &mut bool) -> Result<Option<String>> {
    let Some(bytes) = session.cache.manifest_bytes(digest)? else { return Ok(None) };
    if manifest_of(key, &bytes, digest).is_err() {
        return Ok(None);
    }
    get_ready(session, ready)?;
    session.store.mend(key, digest, BlobSource::Bytes(bytes.clone().into()))?;
    let now = session.store.get(key, crate::limits::METADATA_LEN)?;
    if now.as_deref() == Some(&bytes[..]) {
        return Ok(Some(
            "written again from the cache, which has the bytes that the checkpoint manifest names".to_owned(),
        ));
    }
    Err(Error::new(Kind::Damage, "it was written again and reads differently"))
}

fn blob(
    session: &Session,
    references: &References<'_>,
    options: &Options,
    name: &BlobName,
    ready: &mut bool,
    progress: &dyn Progress,
) -> Result<Option<String>> {
    let Examined::Good(file, length) = session.cache.examine(&name.digest)? else { return Ok(None) };
    // Only a length that a manifest claims, and that the bytes have.
    let Some(named) = references.blobs.get(&(*name, length)) else { return Ok(None) };
    get_ready(session, ready)?;
    let key = Key::blob(name);
    session.store.mend(&key, &name.digest, BlobSource::File(&file, length))?;
    let left = match &options.read {
        Some(_) => Reader::new(session, references, progress).blob(name, length, named)?.pop().map(|f| f.detail),
        None => look_at(session, name, length)?.map(|(_, why)| why),
    };
    match left {
        None => Ok(Some("uploaded again from the cache".to_owned())),
        Some(why) => Err(Error::new(Kind::Damage, format!("it was uploaded again, and {why}"))),
    }
}

fn entry(session: &Session, references: &References<'_>, digest: &Digest) -> Result<Option<String>> {
    session.cache.discard(digest)?;
    if matches!(session.cache.examine(digest)?, Examined::Bad(_)) {
        return Ok(None);
    }
    let users: &[User] = references.kept.get(digest).map_or(&[], |kept| &kept.users);
    let mut failed = None;
    for user in users {
        match fetch(session, references, *user, digest) {
            Ok(true) => return Ok(Some("fetched anew from the store".to_owned())),
            Ok(false) => {}
            Err(e) if e.kind() == Kind::Unavailable => return Err(e),
            Err(e) => failed = Some(e),
        }
    }
    Ok(Some(match failed {
        None => "removed".to_owned(),
        Some(e) => format!("removed; it cannot be fetched anew: {e}"),
    }))
}

/// Fetches the entry as the file, or as a bundle, that a user names.
fn fetch(session: &Session, references: &References<'_>, user: User, digest: &Digest) -> Result<bool> {
    let Some((manifest, file)) = references.file(session, user)? else { return Ok(false) };
    match manifest.files.get(file) {
        Some(file) if file.digest == *digest => {
            session.cache.fetch_file(&session.store, &manifest, file)?;
            Ok(true)
        }
        Some(_) if manifest.blobs.iter().any(|b| b.bundle && b.name.digest == *digest) => {
            session.cache.fetch_bundles(&session.store, &manifest)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Refuses to write where a record says that this version must not.
pub(super) fn allowed(blocks_writing: &std::collections::BTreeMap<Key, String>) -> Result<()> {
    match blocks_writing.first_key_value() {
        None => Ok(()),
        Some((key, needs)) => Err(LifecycleError::NewerForWriters { key: key.clone(), needs: needs.clone() }.into()),
    }
}
