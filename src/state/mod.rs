//! State backends.
