//! The two lines of every metadata object: a header that covers the body, and the body.
//!
//! ```text
//! {"ckptfs":"task-manifest/1","length":N,"blake3":"<64 hex>","requires":[],"requires_write":[],"encoding":"plain"}\n
//! {...body, N bytes...}\n
//! ```
//!
//! A header may have more fields than these, which are passed over: [`super::signature`] adds one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::intent::Intent;
use super::outcome::Outcome;
use super::place::Place;
use super::records::{EpochRecord, ExpiredRecord, FloorRecord, HiddenRecord, PinRecord, StoreRecord};
use super::task::TaskManifest;
use crate::error::Kind;
use crate::limits;
use crate::types::{Digest, Key, KeyParts};

/// Why stored bytes were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes are not what a whole object looks like, or their digest differs.
    #[error("damaged {what}: {why}")]
    Damaged {
        /// The kind of object that was expected.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A whole object, but not the one that belongs at this key.
    #[error("{what} at the wrong place: {why}")]
    Misplaced {
        /// The kind of object that was expected.
        what: &'static str,
        /// What it says and what was expected.
        why: String,
    },
    /// Whoever read it for us did not believe it.
    #[error("{what} is not believed: {why}")]
    Refused {
        /// The kind of object that was expected.
        what: &'static str,
        /// Why not, and what to do.
        why: String,
    },
    /// Written by a newer version that asks older ones to keep away.
    #[error("{what} needs {needs}, which this version of ckptfs does not know: upgrade ckptfs")]
    Newer {
        /// The kind of object that was expected.
        what: &'static str,
        /// What is needed.
        needs: String,
    },
    /// What was to be written breaks a limit or a rule.
    #[error("{what} cannot be written: {why}")]
    Unwritable {
        /// The kind of object.
        what: &'static str,
        /// The rule.
        why: String,
    },
}

impl FormatError {
    /// The coarse kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Damaged { .. } | Self::Misplaced { .. } | Self::Refused { .. } => Kind::Damage,
            Self::Newer { .. } => Kind::Newer,
            Self::Unwritable { .. } => Kind::Invalid,
        }
    }
}

/// A kind of metadata object.
pub trait Record: Serialize + DeserializeOwned {
    /// Its name in the header.
    const WHAT: &'static str;
    /// Its format version in the header.
    const VERSION: u32;

    /// Where the body says that it belongs.
    fn place(&self) -> &Place;

    /// Bounds and cross-references that the types cannot hold.
    ///
    /// # Errors
    /// The first rule that is broken, in words.
    fn check(&self) -> Result<(), String>;
}

/// A record, and what writers must know to go on beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<R> {
    /// The record.
    pub record: R,
    /// Requirements that this version does not know: it may read, but must neither write nor sweep.
    pub blocks_writing: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    ckptfs: String,
    length: u64,
    blake3: Digest,
    requires: Vec<String>,
    requires_write: Vec<String>,
    encoding: String,
}

/// How bytes begin that stand in for a record which must not be believed. No header begins so.
const REFUSAL: &[u8] = b"refused: ";

/// Longest reason that a refusal carries.
const REASON_LEN: usize = 1000;

/// Bytes for whoever asked for a record that is there and must not be believed: decoding them gives
/// [`FormatError::Refused`] with this reason, so that an untrusted record is dealt with like a damaged one.
#[must_use]
pub fn refusal(why: &str) -> Vec<u8> {
    let why: String = why.chars().take(REASON_LEN).collect();
    [REFUSAL, why.as_bytes()].concat()
}

/// Requirements that this version knows. None exist so far.
const KNOWN: [&str; 0] = [];

fn unknown(list: &[String]) -> Vec<String> {
    list.iter().filter(|r| !KNOWN.contains(&r.as_str())).cloned().collect()
}

/// The stored bytes of a record.
///
/// # Errors
/// When the record breaks its own rules or is larger than may be read back.
pub fn encode<R: Record>(record: &R) -> Result<Vec<u8>, FormatError> {
    encode_requiring(record, &[], &[])
}

/// [`encode`] with requirements, as a newer version would write them.
///
/// # Errors
/// As [`encode`].
pub fn encode_requiring<R: Record>(
    record: &R,
    requires: &[&str],
    requires_write: &[&str],
) -> Result<Vec<u8>, FormatError> {
    let unwritable = |why: String| FormatError::Unwritable { what: R::WHAT, why };
    record.check().map_err(unwritable)?;
    let body = serde_json::to_vec(record).map_err(|e| unwritable(e.to_string()))?;
    let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    let header = Header {
        ckptfs: format!("{}/{}", R::WHAT, R::VERSION),
        length: body.len() as u64,
        blake3: Digest::of(&body),
        requires: strings(requires),
        requires_write: strings(requires_write),
        encoding: "plain".to_owned(),
    };
    let mut out = serde_json::to_vec(&header).map_err(|e| unwritable(e.to_string()))?;
    out.push(b'\n');
    out.extend_from_slice(&body);
    out.push(b'\n');
    if out.len() as u64 > limits::METADATA_LEN {
        return Err(unwritable(format!("{} bytes, at most {} may be", out.len(), limits::METADATA_LEN)));
    }
    Ok(out)
}

/// Reads a record back; believes it only if header, length, digest, kind and rules hold.
///
/// # Errors
/// [`FormatError::Damaged`], or [`FormatError::Newer`] where a newer version wrote it.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<Decoded<R>, FormatError> {
    let damaged = |why: String| FormatError::Damaged { what: R::WHAT, why };
    if bytes.len() as u64 > limits::METADATA_LEN {
        return Err(damaged(format!("{} bytes, at most {} may be", bytes.len(), limits::METADATA_LEN)));
    }
    if let Some(why) = bytes.strip_prefix(REFUSAL) {
        let why = String::from_utf8_lossy(why).chars().take(REASON_LEN).collect();
        return Err(FormatError::Refused { what: R::WHAT, why });
    }
    let line_end = bytes
        .iter()
        .take(limits::HEADER_LEN)
        .position(|&b| b == b'\n')
        .ok_or_else(|| damaged("no header line".to_owned()))?;
    let (head, rest) = bytes.split_at(line_end);
    let header: Header = serde_json::from_slice(head).map_err(|e| damaged(format!("header: {e}")))?;
    if header.requires.len() > limits::REQUIRES || header.requires_write.len() > limits::REQUIRES {
        return Err(damaged("too many requirements".to_owned()));
    }
    let (kind, version) = header.ckptfs.split_once('/').ok_or_else(|| damaged("header names no kind".to_owned()))?;
    if kind != R::WHAT {
        return Err(FormatError::Misplaced { what: R::WHAT, why: format!("it is a {kind:?}") });
    }
    let body = rest
        .strip_prefix(b"\n")
        .and_then(|b| b.strip_suffix(b"\n"))
        .ok_or_else(|| damaged("it does not end with a line feed".to_owned()))?;
    if body.len() as u64 != header.length {
        return Err(damaged(format!("body has {} bytes, the header says {}", body.len(), header.length)));
    }
    if Digest::of(body) != header.blake3 {
        return Err(damaged("the body's digest differs from the header's".to_owned()));
    }
    // Only a header whose body is whole is believed when it says that it is too new.
    let needs = unknown(&header.requires);
    if !needs.is_empty() {
        return Err(FormatError::Newer { what: R::WHAT, needs: needs.join(", ") });
    }
    if version != R::VERSION.to_string() {
        return Err(FormatError::Newer { what: R::WHAT, needs: format!("format {}", header.ckptfs) });
    }
    if header.encoding != "plain" {
        return Err(FormatError::Newer { what: R::WHAT, needs: format!("encoding {:?}", header.encoding) });
    }
    let record: R = serde_json::from_slice(body).map_err(|e| damaged(e.to_string()))?;
    record.check().map_err(damaged)?;
    Ok(Decoded { record, blocks_writing: unknown(&header.requires_write) })
}

/// What every body says first.
#[derive(Deserialize)]
struct Placed {
    place: Place,
}

/// What the header of an object at this key says that it is; nothing where no such object lies.
fn kind_at(key: &Key) -> Option<String> {
    fn of<R: Record>() -> Option<String> {
        Some(format!("{}/{}", R::WHAT, R::VERSION))
    }
    match key.parts() {
        KeyParts::Store => of::<StoreRecord>(),
        KeyParts::Blob(_) | KeyParts::Head(_) => None,
        KeyParts::Epoch(..) => of::<EpochRecord>(),
        KeyParts::Intent(..) => of::<Intent>(),
        KeyParts::Task(..) => of::<TaskManifest>(),
        KeyParts::Outcome(..) => of::<Outcome>(),
        KeyParts::Hidden(..) => of::<HiddenRecord>(),
        KeyParts::Expired(..) => of::<ExpiredRecord>(),
        KeyParts::Pin(..) => of::<PinRecord>(),
        KeyParts::Floor(..) => of::<FloorRecord>(),
    }
}

/// Whether these bytes are a whole object of this version that belongs at this key. Not so, they may all the same be what was stored
/// there: by a newer version, or by somebody who is not to be believed.
///
/// # Errors
/// In words.
pub fn whole_at(key: &Key, bytes: &[u8]) -> Result<(), String> {
    let Some(kind) = kind_at(key) else { return Ok(()) };
    let no_header = || "no header line".to_owned();
    let line_end = bytes.iter().take(limits::HEADER_LEN).position(|&b| b == b'\n').ok_or_else(no_header)?;
    let (head, rest) = bytes.split_at(line_end);
    let header: Header = serde_json::from_slice(head).map_err(|e| format!("header: {e}"))?;
    // None of it is covered by the digest.
    if header.ckptfs != kind || header.encoding != "plain" || !unknown(&header.requires).is_empty() {
        return Err(format!("it is a {:?}, encoding {:?}", header.ckptfs, header.encoding));
    }
    let body = rest.strip_prefix(b"\n").and_then(|b| b.strip_suffix(b"\n"));
    let body = body.filter(|b| b.len() as u64 == header.length && Digest::of(b) == header.blake3);
    let body = body.ok_or_else(|| "the body is not the one that the header speaks of".to_owned())?;
    serde_json::from_slice::<Placed>(body).map_err(|e| e.to_string())?.place.belongs_at(key)
}

/// [`decode`], and the body must name the place that the key stands for.
///
/// # Errors
/// As [`decode`]; [`FormatError::Misplaced`] when a whole object lies at another's key.
pub fn decode_at<R: Record>(key: &Key, bytes: &[u8]) -> Result<Decoded<R>, FormatError> {
    let decoded = decode::<R>(bytes)?;
    decoded.record.place().belongs_at(key).map_err(|why| FormatError::Misplaced { what: R::WHAT, why })?;
    Ok(decoded)
}
