//! Reads new tables while the checkpoint is still being opened: the disk of a local store begins with their bytes that much
//! earlier. What is written has no name yet, so that the protocol does not know of it.

use std::collections::HashMap;
use std::fs::File;

use super::cancel::Cancel;
use super::plan::own_blob;
use super::scan::{Scan, ScannedFile};
use super::transfer::hash_into;
use crate::cache::Session;
use crate::error::Result;
use crate::lifecycle::driver;
use crate::limits;
use crate::store::StagedBlob;
use crate::types::Digest;

/// A table that was hashed while it was written.
#[derive(Debug)]
pub struct Hashed<'a> {
    /// The table, open since before its first byte was read.
    pub opened: File,
    /// Its digest.
    pub digest: Digest,
    /// Its hash tree.
    pub tree: Vec<u8>,
    /// Its bytes in the store.
    pub staged: StagedBlob<'a>,
}

/// Tables by name, each to be taken once.
#[derive(Debug, Default)]
pub struct Ahead<'a>(pub(super) HashMap<String, Hashed<'a>>);

impl<'a> Ahead<'a> {
    /// Hashes the first tables that have no record. One that fails is left out: it is tried again, and fails, in its turn.
    #[must_use]
    pub fn look(session: &'a Session, scan: &Scan) -> Self {
        let mut bytes = 0_u64;
        let mut new = Vec::new();
        for file in scan.files.iter().filter(|f| f.immutable() && own_blob(f) && f.record.is_none() && f.link.is_none())
        {
            if bytes >= limits::READ_AHEAD {
                break;
            }
            if let Ok(opened) = scan.open(file) {
                bytes = bytes.saturating_add(file.stat.size);
                new.push((file, opened));
            }
        }
        let hashed = driver::parallel(new, |(file, opened)| {
            let hashed = hash(session, file, opened).unwrap_or_else(|e| {
                log::debug!("not read ahead: {e}");
                None
            });
            Ok::<_, std::convert::Infallible>(hashed.map(|h| (file.name.clone(), h)))
        });
        Self(hashed.unwrap_or_default().into_iter().flatten().collect())
    }
}

fn hash<'a>(session: &'a Session, file: &ScannedFile, opened: File) -> Result<Option<Hashed<'a>>> {
    let Some(mut staged) = session.store.stage_blob()? else { return Ok(None) };
    let (digest, tree) = hash_into(&mut staged, file, &opened, &Cancel::default())?;
    staged.start();
    Ok(Some(Hashed { opened, digest, tree, staged }))
}
