//! From a checkpoint to a running database.
