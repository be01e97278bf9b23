//! The tree that the mount shows. No FUSE types.
