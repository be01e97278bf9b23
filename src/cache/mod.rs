//! Local files by digest: link, fetch, verify, evict.

pub mod tree;
