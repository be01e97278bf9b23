//! Hashes the local cache's entries again, whatever their records say: finds what this disk lost.

use super::finding::{Finding, FindingKind, Object};
use super::references::References;
use super::resume::Proved;
use super::{Read, Report};
use crate::cache::{Examined, Session};
use crate::error::{Kind, Result};
use crate::lifecycle::driver;
use crate::types::{Digest, Hasher, Progress};

/// Where an entry lies, for people.
fn path(session: &Session, digest: &Digest) -> String {
    let hex = digest.to_hex();
    session.cache.path().join("files").join(hex.get(..2).unwrap_or_default()).join(&hex).display().to_string()
}

fn mark(digest: &Digest) -> Digest {
    Hasher::new().update(b"cache\0").update(digest.as_bytes()).finish()
}

/// Reads the entries that living checkpoints name and the sample picks. A wrong one stays where it is, and nobody believes its record
/// any more: the next reader fetches it anew.
pub(super) fn read(
    session: &Session,
    references: &References<'_>,
    read: &Read,
    proved: &Proved,
    progress: &dyn Progress,
    report: &mut Report,
) -> Result<()> {
    let todo: Vec<_> =
        references.kept.iter().filter(|(digest, _)| read.picks(digest) && !proved.knows(&mark(digest))).collect();
    let looked = driver::parallel(todo, |(digest, kept)| {
        let why = match session.cache.examine(digest) {
            Ok(Examined::Absent) => return Ok(None),
            Ok(Examined::Good(_, length)) => {
                progress.advance(length);
                proved.note(&mark(digest));
                return Ok(Some(None));
            }
            Ok(Examined::Bad(bad)) => (FindingKind::Damaged, bad.why),
            Err(e) if e.kind() == Kind::Resources => return Err(e),
            Err(e) => (FindingKind::Unreadable, e.to_string()),
        };
        Ok(Some(Some((*digest, why, &kept.users))))
    })?;
    for found in looked.into_iter().flatten() {
        report.cache_files += 1;
        if let Some((digest, (kind, detail), users)) = found {
            let hurts = references.hurts(session, users);
            let (object, at) = (path(session, &digest), Object::Cached(digest));
            report.findings.push(Finding { kind, object, at, hurts, detail, mended: None });
        }
    }
    Ok(())
}
