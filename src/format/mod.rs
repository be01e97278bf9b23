//! Stored bytes to types and back. Pure and bounded.
