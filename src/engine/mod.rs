//! The snapshot engine: what a task does for a checkpoint.
