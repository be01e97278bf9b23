//! The object store behind a typed, blocking interface.
