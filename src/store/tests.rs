//! One conformance suite for every kind of store.
