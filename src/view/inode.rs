//! Inode numbers, and what stands behind them.
//!
//! A number says what it is for, so that it is the same after every restart and on every host:
//!
//! ```text
//! bits 63..56   0
//! bit  55       a file that is identified by its content (.sst, .blob)
//! bit  54       its lazy number (served by the daemon); without it the local number (passthrough)
//! bits 53..0    from the digest of the content, or of the path
//! ```
//!
//! The kernel refuses to mix both ways of serving on one inode, which is why such a file has two numbers. Two
//! things that want one number are told apart on insert: the later one takes the next free number.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as Slot;

use super::node::Node;
use crate::types::{Digest, Hasher};

/// The root's number, fixed by FUSE.
pub const ROOT: u64 = 1;

const CONTENT: u64 = 1 << 55;
const LAZY: u64 = 1 << 54;
const MASK: u64 = LAZY - 1;

/// The lazy number of a file with this local number.
pub(super) fn lazy(local: u64) -> u64 {
    local | LAZY
}

/// Whether a number is a lazy one.
pub(super) fn is_lazy(ino: u64) -> bool {
    ino & CONTENT != 0 && ino & LAZY != 0
}

/// What a number was given to: a digest of the path, or of content and size.
pub(super) fn identity_of_path(path: &str) -> Digest {
    Digest::of(path.as_bytes())
}

/// The size belongs to it: a manifest may lie about the size of a digest, and must not change the size that an honest one shows.
pub(super) fn identity_of_content(digest: &Digest, size: u64) -> Digest {
    Hasher::new().update(digest.as_bytes()).update(&size.to_le_bytes()).finish()
}

fn bits(identity: &Digest) -> u64 {
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(identity.as_bytes()) {
        *to = *from;
    }
    u64::from_le_bytes(first) & MASK
}

/// All numbers that are in use; of content, the local ones, since the lazy one is free whenever its local one is. A number that is
/// forgotten is given only to the same thing again, but for the rare ones that collided.
#[derive(Default)]
pub(super) struct Inodes {
    known: DashMap<u64, (Digest, Node)>,
}

impl Inodes {
    pub(super) fn get(&self, ino: u64) -> Option<Node> {
        let ino = if is_lazy(ino) { ino & !LAZY } else { ino };
        self.known.get(&ino).map(|slot| slot.1.clone())
    }

    pub(super) fn remove(&self, ino: u64) {
        self.known.remove(&ino);
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The node of this identity; where there is none yet, `make` makes one for the number that it gets. `make` must not
    /// come back here: it runs under the table's lock.
    pub(super) fn claim(&self, identity: Digest, content: bool, make: impl FnOnce(u64) -> Node) -> Node {
        self.claim_at(bits(&identity), identity, content, make)
    }

    fn claim_at(&self, start: u64, identity: Digest, content: bool, make: impl FnOnce(u64) -> Node) -> Node {
        let mut at = start;
        loop {
            let ino = if content { at | CONTENT } else { at };
            if content || ino > ROOT {
                match self.known.entry(ino) {
                    Slot::Occupied(slot) if slot.get().0 == identity => return slot.get().1.clone(),
                    Slot::Occupied(_) => {}
                    Slot::Vacant(slot) => {
                        let node = make(ino);
                        slot.insert((identity, node.clone()));
                        return node;
                    }
                }
            }
            at = (at + 1) & MASK;
        }
    }

    /// Puts the root in.
    pub(super) fn root(&self, node: Node) {
        self.known.insert(ROOT, (identity_of_path("/"), node));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::node::Latest;
    use super::*;

    fn node(ino: u64) -> Node {
        Node::Latest(Arc::new(Latest { ino, target: "chk-1".parse().unwrap(), mtime_ms: 0 }))
    }

    fn ino(node: &Node) -> u64 {
        match node {
            Node::Latest(l) => l.ino,
            _ => 0,
        }
    }

    #[test]
    fn collisions_are_told_apart_and_numbers_stay() {
        let inodes = Inodes::default();
        let (a, b, c) = (Digest::of(b"a"), Digest::of(b"b"), Digest::of(b"c"));
        let first = ino(&inodes.claim_at(MASK, a, false, node));
        assert_eq!(first, MASK);
        // Wraps around past 0 and the root's number.
        let second = ino(&inodes.claim_at(MASK, b, false, node));
        assert_eq!(second, 2);
        assert_eq!(ino(&inodes.claim_at(MASK, c, false, node)), 3);
        for (identity, want) in [(a, first), (b, second)] {
            assert_eq!(ino(&inodes.claim_at(MASK, identity, false, |_| panic!("made twice"))), want);
        }
    }

    #[test]
    fn content_has_two_numbers_with_a_zero_top_byte() {
        let inodes = Inodes::default();
        let local = ino(&inodes.claim(identity_of_content(&Digest::of(b"x"), 1), true, node));
        assert!(!is_lazy(local) && is_lazy(lazy(local)));
        assert_eq!(lazy(local) >> 56, 0);
        assert!(inodes.get(lazy(local)).is_some());
        let other = ino(&inodes.claim_at(local & MASK, Digest::of(b"y"), true, node));
        assert_eq!(other, (local & MASK).wrapping_add(1) & MASK | CONTENT);
    }
}
