//! The bundle: one blob per subtask snapshot that packs its small files, hash trees and SST tails.
//!
//! ```text
//! "CKPTFSB1" | section | section | ...      each section starts on a multiple of 8, padded with zeros before it
//! ```
//!
//! What a section is, the task manifest says: its extents point into the bundle.

/// The first bytes of every bundle.
pub const MAGIC: &[u8; 8] = b"CKPTFSB1";

/// Sections start on multiples of this.
const ALIGN: usize = 8;

/// Packs sections one behind the other.
#[derive(Debug)]
pub struct BundleBuilder {
    bytes: Vec<u8>,
}

impl Default for BundleBuilder {
    fn default() -> Self {
        Self { bytes: MAGIC.to_vec() }
    }
}

impl BundleBuilder {
    /// Adds a section; returns its offset and length in the bundle.
    pub fn add(&mut self, section: &[u8]) -> (u64, u64) {
        let padded = self.bytes.len().next_multiple_of(ALIGN);
        self.bytes.resize(padded, 0);
        self.bytes.extend_from_slice(section);
        (padded as u64, section.len() as u64)
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == MAGIC.len()
    }

    /// The bundle's bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The bytes of a section, if the bundle is one and holds it.
#[must_use]
pub fn section(bundle: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    if !bundle.starts_with(MAGIC) {
        return None;
    }
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    if start < MAGIC.len() {
        return None;
    }
    bundle.get(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_come_back_and_hostile_extents_do_not() {
        let mut b = BundleBuilder::default();
        assert!(b.is_empty());
        let (o1, l1) = b.add(b"abc");
        assert!(!b.is_empty());
        let (o2, l2) = b.add(b"defgh");
        assert_eq!((o1, o2), (8, 16));
        let bytes = b.finish();
        assert_eq!(section(&bytes, o1, l1), Some(&b"abc"[..]));
        assert_eq!(section(&bytes, o2, l2), Some(&b"defgh"[..]));
        for (o, l) in [(0, 8), (16, 6), (u64::MAX, 1), (8, u64::MAX), (100, 0)] {
            assert_eq!(section(&bytes, o, l), None);
        }
        assert_eq!(section(b"not a bundle at all", 8, 1), None);
    }
}
