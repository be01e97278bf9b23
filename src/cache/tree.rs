//! BLAKE3 hash trees over 64 KiB groups: whoever has a file's digest and its tree can verify any run of whole groups
//! without the rest of the file. The bytes of a tree are a stored format and never change:
//!
//! - The file is cut into groups of 65,536 bytes; only the last one may be shorter. A file of `n` bytes has
//!   `g = max(1, ceil(n / 65536))` groups, and its tree has exactly `64 * (g - 1)` bytes: none for at most one group.
//! - A subtree over `k > 1` groups has on its left the largest power of two of groups that is smaller than `k`, and on
//!   its right all others: BLAKE3's own shape.
//! - It is stored as the 32-byte chaining value of its left half, that of its right half, then the left half's tree, then
//!   the right half's (pre-order). A single group stores nothing.
//! - A group's chaining value is BLAKE3's over its chunks, counted from their place in the file. The parent of the whole
//!   file, finalized as root, is the file's digest, which equals plain BLAKE3-256 of its bytes.
//! - Neither the root nor a length is part of it: both stand in the task manifest.

use std::io::{self, Read};

use bao_tree::blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use bao_tree::blake3::{Hash, Hasher};
use bao_tree::io::outboard::PreOrderMemOutboard;
use bao_tree::io::sync::{DecodeResponseIter, outboard};
use bao_tree::iter::{BaoChunk, ResponseIterRef};
use bao_tree::{BaoTree, BlockSize, ChunkNum, ChunkRanges};

use crate::error::Kind;
use crate::limits;
use crate::types::Digest;

/// 2^6 chunks of 1 KiB: [`limits::GROUP`].
const BLOCK: BlockSize = BlockSize::from_chunk_log(6);

/// Bytes of a stored pair of hashes.
const PAIR: u64 = 64;

/// From here on the halves of a subtree are hashed by two threads: below, starting the threads costs more than it gains, and
/// several files are hashed at once anyway.
const PARALLEL: usize = 16 << 20;

/// Why a run of bytes was not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// No file may be that large.
    #[error("a file of {size} bytes: at most {} may be", limits::BLOB_LEN)]
    TooLarge {
        /// The claimed size.
        size: u64,
    },
    /// The tree is not one of a file of that size.
    #[error("the hash tree has {found} bytes, not the {expected} of a file of {size} bytes")]
    TreeLength {
        /// The file's size.
        size: u64,
        /// Length that its tree must have.
        expected: u64,
        /// Length that it has.
        found: u64,
    },
    /// The run does not begin and end on group boundaries (or at the file's end), or lies outside of the file.
    #[error("{length} bytes at {offset} are not whole 64 KiB groups of a file of {size} bytes")]
    NotWholeGroups {
        /// The file's size.
        size: u64,
        /// Where the run begins.
        offset: u64,
        /// Its length.
        length: u64,
    },
    /// A pair of hashes in the tree does not belong to the digest.
    #[error("the hash tree does not belong to the file's digest")]
    Tree,
    /// The bytes are not those of the digest.
    #[error("the bytes from {offset} on are not those of the file's digest")]
    Data {
        /// The first byte of the group that is wrong.
        offset: u64,
    },
}

impl TreeError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotWholeGroups { .. } => Kind::Invalid,
            _ => Kind::Damage,
        }
    }
}

/// Bytes of the tree of a file of `size` bytes.
#[must_use]
pub fn tree_len(size: u64) -> u64 {
    size.div_ceil(limits::GROUP).saturating_sub(1).saturating_mul(PAIR)
}

/// The smallest run of whole groups that holds `length` bytes at `offset` of a file of `size` bytes, cut at its end:
/// offset and length.
#[must_use]
pub fn whole_groups(size: u64, offset: u64, length: u64) -> (u64, u64) {
    let end = offset.saturating_add(length).min(size);
    let start = offset.min(end) / limits::GROUP * limits::GROUP;
    let end = end.checked_next_multiple_of(limits::GROUP).unwrap_or(size).min(size);
    (start, end - start)
}

fn digest_of(hash: &Hash) -> Digest {
    Digest::from_bytes(*hash.as_bytes())
}

/// The digest of these bytes and their tree. Large buffers are hashed by all threads.
#[must_use]
pub fn hash_and_tree(bytes: &[u8]) -> (Digest, Vec<u8>) {
    let length = usize::try_from(tree_len(bytes.len() as u64)).unwrap_or_default();
    let mut tree = vec![0; length];
    // The root's hash is finalized differently; nothing above it will be merged.
    let digest = match split(bytes) {
        None => Digest::of(bytes),
        Some((left, right)) => {
            let (l, r) = children(left, right, 0, &mut tree);
            digest_of(&merge_subtrees_root(&l, &r, Mode::Hash))
        }
    };
    (digest, tree)
}

/// The two halves of a subtree of more than one group.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let group = BLOCK.bytes();
    let groups = bytes.len().div_ceil(group);
    if groups <= 1 {
        return None;
    }
    // The largest power of two below `groups`.
    let left = groups.next_power_of_two() / 2;
    bytes.split_at_checked(left.checked_mul(group)?)
}

/// Chaining values of both halves; their pair and their trees are written to `tree`.
fn children(left: &[u8], right: &[u8], offset: u64, tree: &mut [u8]) -> ([u8; 32], [u8; 32]) {
    let pair = usize::try_from(PAIR).unwrap_or(64);
    let (own, below) = tree.split_at_mut(pair.min(tree.len()));
    let left_tree = usize::try_from(tree_len(left.len() as u64)).unwrap_or_default().min(below.len());
    let (left_tree, right_tree) = below.split_at_mut(left_tree);
    let right_offset = offset.saturating_add(left.len() as u64);
    let mut do_left = || subtree(left, offset, left_tree);
    let mut do_right = || subtree(right, right_offset, right_tree);
    let (l, r) = if left.len() >= PARALLEL { rayon::join(do_left, do_right) } else { (do_left(), do_right()) };
    for (to, from) in own.iter_mut().zip(l.iter().chain(&r)) {
        *to = *from;
    }
    (l, r)
}

fn subtree(bytes: &[u8], offset: u64, tree: &mut [u8]) -> [u8; 32] {
    match split(bytes) {
        None => {
            let mut hasher = Hasher::new();
            hasher.set_input_offset(offset).update(bytes);
            hasher.finalize_non_root()
        }
        Some((left, right)) => {
            let (l, r) = children(left, right, offset, tree);
            merge_subtrees_non_root(&l, &r, Mode::Hash)
        }
    }
}

/// The digest and the tree of exactly `size` bytes of a reader, which must end there.
///
/// # Errors
/// When reading fails, or the reader has fewer or more bytes: the file changed.
pub fn hash_and_tree_of(mut reader: impl Read, size: u64) -> io::Result<(Digest, Vec<u8>)> {
    if size > limits::BLOB_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, TreeError::TooLarge { size }));
    }
    let tree = BaoTree::new(size, BLOCK);
    let length = usize::try_from(tree_len(size)).map_err(io::Error::other)?;
    let mut pairs = PreOrderMemOutboard { root: Hash::from_bytes([0; 32]), tree, data: vec![0; length] };
    let root = outboard(&mut reader, tree, &mut pairs)?;
    if reader.read(&mut [0])? != 0 {
        return Err(io::Error::other(format!("it has more than the {size} bytes that it had before: it changed")));
    }
    Ok((digest_of(&root), pairs.data))
}

/// Slices, read one behind the other.
struct Pieces<'a>(std::vec::IntoIter<&'a [u8]>, &'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.1.is_empty() {
            match self.0.next() {
                Some(next) => self.1 = next,
                None => return Ok(0),
            }
        }
        self.1.read(buffer)
    }
}

/// Verifies that these are the bytes of the tree of the file of digest `root` and `size` bytes, every pair of them. Nobody can make other
/// bytes that pass: what a tree of a digest holds is settled by the digest.
///
/// # Errors
/// When it is too short, too long, or any pair is wrong.
pub fn verify_tree(root: &Digest, size: u64, tree: &[u8]) -> Result<(), TreeError> {
    if size > limits::BLOB_LEN {
        return Err(TreeError::TooLarge { size });
    }
    let (expected, found) = (tree_len(size), tree.len() as u64);
    if expected != found {
        return Err(TreeError::TreeLength { size, expected, found });
    }
    if tree.is_empty() {
        return Ok(());
    }
    let (left, right) = checked_pair(tree).ok_or(TreeError::Tree)?;
    let found = digest_of(&merge_subtrees_root(&left, &right, Mode::Hash));
    if found == *root { Ok(()) } else { Err(TreeError::Tree) }
}

/// The pair at the front of a subtree, if all below it belongs to it.
fn checked_pair(tree: &[u8]) -> Option<([u8; 32], [u8; 32])> {
    let pair = usize::try_from(PAIR).ok()?;
    let (own, below) = tree.split_at_checked(pair)?;
    let (left, right) = (*own.first_chunk::<32>()?, *own.last_chunk::<32>()?);
    // A subtree of `k` groups has `k - 1` pairs.
    let groups = tree.len() / pair + 1;
    let left_pairs = (groups.next_power_of_two() / 2).checked_sub(1)?;
    let (left_tree, right_tree) = below.split_at_checked(left_pairs.checked_mul(pair)?)?;
    for (value, tree) in [(left, left_tree), (right, right_tree)] {
        if tree.is_empty() {
            continue;
        }
        let (l, r) = checked_pair(tree)?;
        if merge_subtrees_non_root(&l, &r, Mode::Hash) != value {
            return None;
        }
    }
    Some((left, right))
}

/// Verifies that `bytes` are what the file of digest `root` and `size` bytes has at `offset`. They must be whole groups
/// (the file's last one may be short). Nothing may be believed when this fails. Takes memory for one group.
///
/// # Errors
/// When the tree or the bytes are not those of the digest, or the run is not one of whole groups.
pub fn verify_range(root: &Digest, size: u64, tree: &[u8], offset: u64, bytes: &[u8]) -> Result<(), TreeError> {
    if size > limits::BLOB_LEN {
        return Err(TreeError::TooLarge { size });
    }
    let (expected, found) = (tree_len(size), tree.len() as u64);
    if expected != found {
        return Err(TreeError::TreeLength { size, expected, found });
    }
    let length = bytes.len() as u64;
    let not_whole = TreeError::NotWholeGroups { size, offset, length };
    let end = offset.checked_add(length).ok_or(not_whole.clone())?;
    if end > size || !offset.is_multiple_of(limits::GROUP) || (!end.is_multiple_of(limits::GROUP) && end != size) {
        return Err(not_whole);
    }
    if length == 0 {
        // Only the empty file has an empty run that says something.
        return match size {
            0 if *root == Digest::of(b"") => Ok(()),
            0 => Err(TreeError::Data { offset }),
            _ => Err(not_whole),
        };
    }

    let shape = BaoTree::new(size, BLOCK);
    let ranges = ChunkRanges::from(ChunkNum::full_chunks(offset)..ChunkNum::chunks(end));
    // What a sender of these groups would send: the pairs on the way down, and the groups between them.
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for item in ResponseIterRef::new(shape, truncated(&ranges, end, size).as_ref()) {
        pieces.push(match item {
            BaoChunk::Parent { node, .. } => {
                let start = shape.pre_order_offset(node).and_then(|n| n.checked_mul(PAIR)).ok_or(TreeError::Tree)?;
                let start = usize::try_from(start).map_err(|_| TreeError::Tree)?;
                tree.get(start..).and_then(|t| t.get(..64)).ok_or(TreeError::Tree)?
            }
            BaoChunk::Leaf { size, .. } => {
                let (group, after) = rest.split_at_checked(size).ok_or(not_whole.clone())?;
                rest = after;
                group
            }
        });
    }
    if !rest.is_empty() {
        return Err(not_whole);
    }
    let pieces = Pieces(pieces.into_iter(), &[]);
    let mut verified = 0_u64;
    for item in DecodeResponseIter::new(Hash::from_bytes(*root.as_bytes()), shape, pieces, &ranges) {
        match item {
            Ok(bao_tree::io::BaoContentItem::Leaf(leaf)) => {
                verified = verified.saturating_add(leaf.data.len() as u64);
            }
            Ok(bao_tree::io::BaoContentItem::Parent(_)) => {}
            Err(bao_tree::io::DecodeError::ParentHashMismatch(_) | bao_tree::io::DecodeError::ParentNotFound(_)) => {
                return Err(TreeError::Tree);
            }
            Err(_) => return Err(TreeError::Data { offset: offset.saturating_add(verified) }),
        }
    }
    if verified == length { Ok(()) } else { Err(not_whole) }
}

/// The decoder takes a range that reaches the end for an open one; the pieces must be laid out the same way.
fn truncated(ranges: &ChunkRanges, end: u64, size: u64) -> ChunkRanges {
    match ranges.boundaries().first() {
        Some(start) if end == size => ChunkRanges::from(*start..),
        _ => ranges.clone(),
    }
}

/// [`verify_range`] of one group.
///
/// # Errors
/// As [`verify_range`].
pub fn verify_group(root: &Digest, size: u64, tree: &[u8], group: u64, bytes: &[u8]) -> Result<(), TreeError> {
    let length = bytes.len() as u64;
    let offset = group.checked_mul(limits::GROUP).filter(|_| length <= limits::GROUP);
    let offset = offset.ok_or(TreeError::NotWholeGroups { size, offset: u64::MAX, length })?;
    verify_range(root, size, tree, offset, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: usize = 64 << 10;

    fn bytes(n: usize) -> Vec<u8> {
        let mut x = 0x9E37_79B9_7F4A_7C15_u64;
        (0..n)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x.to_le_bytes()[3]
            })
            .collect()
    }

    fn sizes() -> Vec<usize> {
        let mut sizes = vec![0, 1, 1023, 1024, 1025, 3 * 1024];
        for groups in [1, 2, 3, 4, 5, 7, 8, 9, 16, 33] {
            let n = groups * GROUP;
            sizes.extend([n - 1025, n - 1, n, n + 1, n + 1024, n + 1025]);
        }
        sizes
    }

    #[test]
    fn digest_is_plain_blake3_and_the_tree_is_bao_trees() {
        for n in sizes() {
            let data = bytes(n);
            let (digest, tree) = hash_and_tree(&data);
            assert_eq!(digest, Digest::of(&data), "{n}");
            assert_eq!(tree.len() as u64, tree_len(n as u64), "{n}");
            assert_eq!(tree, PreOrderMemOutboard::create(&data, BLOCK).data, "{n}");
            assert_eq!(hash_and_tree_of(&data[..], n as u64).unwrap(), (digest, tree), "{n}");
        }
    }

    /// The format by its own words, without the library and without our recursion: it is stored for ever.
    #[test]
    fn known_bytes_of_a_tree_of_three_groups() {
        let data = bytes(2 * GROUP + 5);
        let (digest, tree) = hash_and_tree(&data);
        let cv = |from: usize, to: usize| {
            let mut h = Hasher::new();
            h.set_input_offset(from as u64).update(&data[from..to]);
            h.finalize_non_root()
        };
        let (a, b, c) = (cv(0, GROUP), cv(GROUP, 2 * GROUP), cv(2 * GROUP, data.len()));
        let ab = merge_subtrees_non_root(&a, &b, Mode::Hash);
        assert_eq!(tree, [ab, c, a, b].concat());
        assert_eq!(digest_of(&merge_subtrees_root(&ab, &c, Mode::Hash)), digest);
        let known = "1d49387bb669d525349256acd2c9ff556b0030772a98d5478cf7852b197fe1f3";
        assert_eq!(Digest::of(&tree).to_hex(), known);
        assert_eq!(hash_and_tree(&data[..GROUP]).1, b"");
    }

    #[test]
    fn a_large_buffer_is_hashed_by_several_threads_to_the_same_tree() {
        let data = bytes(2 * PARALLEL + 77);
        let (digest, tree) = hash_and_tree(&data);
        assert_eq!((digest, tree), hash_and_tree_of(&data[..], data.len() as u64).unwrap());
        assert_eq!(digest, Digest::of(&data));
    }

    #[test]
    fn a_reader_of_another_length_is_refused() {
        let data = bytes(GROUP + 9);
        assert!(hash_and_tree_of(&data[..], data.len() as u64 + 1).is_err());
        assert!(hash_and_tree_of(&data[..], data.len() as u64 - 1).is_err());
        assert!(hash_and_tree_of(&data[..], limits::BLOB_LEN + 1).is_err());
    }

    #[test]
    fn every_run_of_whole_groups_is_verified_and_every_flipped_bit_found() {
        for n in sizes() {
            let data = bytes(n);
            let (root, tree) = hash_and_tree(&data);
            let size = n as u64;
            let groups = n.div_ceil(GROUP).max(1);
            for first in 0..groups {
                for last in first..groups.min(first + 6) {
                    let (from, to) = (first * GROUP, ((last + 1) * GROUP).min(n));
                    let run = &data[from..to];
                    assert_eq!(verify_range(&root, size, &tree, from as u64, run), Ok(()), "{n} {from}..{to}");
                    if run.is_empty() {
                        continue;
                    }
                    let mut bad = run.to_vec();
                    let at = (from * 31 + 17) % run.len();
                    bad[at] ^= 4;
                    let wrong = ((from + at) / GROUP * GROUP) as u64;
                    assert_eq!(
                        verify_range(&root, size, &tree, from as u64, &bad),
                        Err(TreeError::Data { offset: wrong })
                    );
                }
            }
            assert!(verify_range(&Digest::of(b"other"), size, &tree, 0, &data).is_err(), "{n}");
        }
    }

    #[test]
    fn every_flipped_bit_of_a_needed_pair_is_found() {
        let data = bytes(5 * GROUP + 100);
        let (root, tree) = hash_and_tree(&data);
        for at in 0..tree.len() {
            let mut bad = tree.clone();
            bad[at] ^= 0x80;
            assert_eq!(verify_range(&root, data.len() as u64, &bad, 0, &data), Err(TreeError::Tree), "{at}");
        }
        // Pairs that are not on the way to a group do not matter to it: the last two are of its right half.
        let mut bad = tree.clone();
        let end = bad.len();
        bad[end - 1] ^= 1;
        assert_eq!(verify_range(&root, data.len() as u64, &bad, 0, &data[..GROUP]), Ok(()));
    }

    #[test]
    fn wrong_sizes_trees_and_runs_are_errors() {
        let data = bytes(4 * GROUP + 100);
        let (root, tree) = hash_and_tree(&data);
        let size = data.len() as u64;
        let g = GROUP as u64;
        for wrong in [0, 1, g, size - 1, size + 1, size + g, 8 * g, limits::BLOB_LEN, limits::BLOB_LEN + 1, u64::MAX] {
            assert!(verify_range(&root, wrong, &tree, 0, &data).is_err(), "{wrong}");
            // Where the number of groups is right, so is the tree, and an inner group is what it is.
            let inner = verify_range(&root, wrong, &tree, 0, &data[..GROUP]);
            assert_eq!(inner.is_ok(), tree_len(wrong) == tree_len(size), "{wrong}");
            let start = wrong.min(size) / g * g;
            let last = &data[usize::try_from(start).unwrap()..];
            assert!(verify_range(&root, wrong, &tree, start, last).is_err(), "{wrong}");
        }
        for length in [0, 1, 63, 64, tree.len() - 64, tree.len() - 1] {
            assert!(matches!(verify_range(&root, size, &tree[..length], 0, &data), Err(TreeError::TreeLength { .. })));
        }
        let cases: [(u64, &[u8]); 8] = [
            (1, &data[1..GROUP]),
            (0, &data[..GROUP - 1]),
            (g, &data[GROUP..2 * GROUP + 1]),
            (4 * g, &data[4 * GROUP..data.len() - 1]),
            (8 * g, b""),
            (size, b""),
            (0, b""),
            (u64::MAX / g * g, &data[..GROUP]),
        ];
        for (offset, run) in cases {
            assert!(
                matches!(verify_range(&root, size, &tree, offset, run), Err(TreeError::NotWholeGroups { .. })),
                "{offset} {}",
                run.len()
            );
        }
        // Right bytes at the wrong place.
        assert!(verify_range(&root, size, &tree, g, &data[..GROUP]).is_err());
        assert_eq!(verify_group(&root, size, &tree, 2, &data[2 * GROUP..3 * GROUP]), Ok(()));
        assert!(verify_group(&root, size, &tree, u64::MAX, &data[..GROUP]).is_err());
        assert!(verify_group(&root, size, &tree, 0, &data).is_err());
    }

    #[test]
    fn a_whole_tree_is_believed_and_one_with_any_flipped_bit_is_not() {
        for groups in [1, 2, 3, 4, 5, 7, 8, 9] {
            for less in [0, 1, GROUP - 1] {
                let data = bytes(groups * GROUP - less);
                let (root, tree) = hash_and_tree(&data);
                let size = data.len() as u64;
                assert_eq!(verify_tree(&root, size, &tree), Ok(()), "{groups} {less}");
                for at in (0..tree.len()).step_by(7) {
                    let mut bad = tree.clone();
                    bad[at] ^= 4;
                    assert_eq!(verify_tree(&root, size, &bad), Err(TreeError::Tree), "{groups} {less} {at}");
                }
                if !tree.is_empty() {
                    assert_eq!(verify_tree(&Digest::of(b"x"), size, &tree), Err(TreeError::Tree));
                    assert!(matches!(verify_tree(&root, size, &tree[1..]), Err(TreeError::TreeLength { .. })));
                }
                assert!(matches!(verify_tree(&root, size + limits::GROUP, &tree), Err(TreeError::TreeLength { .. })));
            }
        }
        assert!(verify_tree(&Digest::of(b""), u64::MAX, b"").is_err());
    }

    #[test]
    fn runs_are_widened_to_groups() {
        let g = limits::GROUP;
        assert_eq!(whole_groups(10 * g, 5, 1), (0, g));
        assert_eq!(whole_groups(10 * g, g - 1, 2), (0, 2 * g));
        assert_eq!(whole_groups(3 * g + 7, 3 * g + 1, 100), (3 * g, 7));
        assert_eq!(whole_groups(7, 0, u64::MAX), (0, 7));
        assert_eq!(whole_groups(7, 100, 5), (0, 7));
        assert_eq!(whole_groups(0, 0, 0), (0, 0));
    }
}
