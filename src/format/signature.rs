//! Signed records: the last field of a header is a keyed BLAKE3 of the whole object, of the key that it lies at and of the store
//! that it lies in.
//!
//! ```text
//! {"ckptfs":"outcome/1",...,"encoding":"plain","mac":"<64 hex>"}\n
//! {...body...}\n
//! ```
//!
//! The bytes that are signed are those of the same object without the field. Whoever has no key passes over it, as over any
//! field of a header that he does not know.

use super::header::FormatError;
use crate::limits;
use crate::types::{Key, KeyParts, KeyRing, Signature, Uid, digest};

/// Separates these signatures from whatever else the same key may be used for.
const DOMAIN: &[u8] = b"ckptfs record signature 1\0";

/// What stands before the digits in the header.
const FIELD: &[u8] = b",\"mac\":\"";

/// What stands behind them.
const END: &[u8] = b"\"}";

const DIGITS: usize = 64;

/// An object without its signature, in two pieces, and the signature.
struct Signed<'a> {
    /// The header up to the field.
    front: &'a [u8],
    /// From the header's closing brace on.
    back: &'a [u8],
    signature: Signature,
}

fn split(object: &[u8]) -> Option<Signed<'_>> {
    let line = object.iter().take(limits::HEADER_LEN).position(|b| *b == b'\n')?;
    let (header, _) = object.split_at(line);
    let rest = header.strip_suffix(END)?;
    let (front, digits) = rest.split_at(rest.len().checked_sub(DIGITS)?);
    let front = front.strip_suffix(FIELD)?;
    let signature = digest::from_hex(std::str::from_utf8(digits).ok()?)?;
    Some(Signed { front, back: object.get(line.checked_sub(1)?..)?, signature })
}

/// What a signature covers besides the object: domain, store, the key's length and the key.
fn place(store: Uid, key: &Key) -> Vec<u8> {
    let text = key.as_str().as_bytes();
    [DOMAIN, store.as_bytes(), &(text.len() as u64).to_le_bytes(), text].concat()
}

/// Whether objects at this key are records: blobs are not, manifests name their digests.
#[must_use]
pub fn is_signed(key: &Key) -> bool {
    !matches!(key.parts(), KeyParts::Blob(_))
}

/// The object with a signature of the ring's first key. One that has it already comes back as it is.
///
/// # Errors
/// [`FormatError::Unwritable`] when it is no record, or would be too large to be read back.
pub fn sign(object: &[u8], ring: &KeyRing, store: Uid, key: &Key) -> Result<Vec<u8>, FormatError> {
    let unwritable = |why: &str| FormatError::Unwritable { what: "record", why: format!("{key}: {why}") };
    let place = place(store, key);
    if let Some(signed) = split(object) {
        return if ring.sign(&[&place, signed.front, signed.back]) == signed.signature {
            Ok(object.to_vec())
        } else {
            Err(unwritable("it is signed already, by another key or for another place"))
        };
    }
    let line = object.iter().take(limits::HEADER_LEN).position(|b| *b == b'\n');
    let line = line.ok_or_else(|| unwritable("it has no header line that could be signed"))?;
    let (header, rest) = object.split_at(line);
    let front = header.strip_suffix(b"}").ok_or_else(|| unwritable("its header is no object"))?;
    let digits = digest::to_hex(&ring.sign(&[&place, object]));
    let out = [front, FIELD, digits.as_bytes(), END, rest].concat();
    if line + FIELD.len() + DIGITS + END.len() >= limits::HEADER_LEN || out.len() as u64 > limits::METADATA_LEN {
        return Err(unwritable("with its signature it is too large to be read back"));
    }
    Ok(out)
}

/// Checks the signature of an object that was found at `key` of this store.
///
/// # Errors
/// Why it is not believed, and what to do, in words.
pub fn verify(object: &[u8], ring: &KeyRing, store: Uid, key: &Key) -> Result<(), String> {
    let Some(signed) = split(object) else {
        return Err(match key.parts() {
            KeyParts::Store => "the store is not signed, and a key is set. A store is signed from its first object on or not at all: \
                 take new checkpoints into a new store with the key, or read this one without it"
                .to_owned(),
            _ => "it is not signed, and a key is set: somebody without the key wrote it, or a ckptfs that was given none. \
                 Give every writer of this store the key file"
                .to_owned(),
        });
    };
    if ring.verify(&[&place(store, key), signed.front, signed.back], &signed.signature) {
        return Ok(());
    }
    Err("its signature is wrong: it was changed, or moved here from another place or store, or it was signed with a key that \
         is not in the key file. After a change of keys, leave the old ones in the file, below the new one"
        .to_owned())
}
