//! Reads Flink's checkpoints: what a `_metadata` file says ([`wire`] has its primitives), and what the state behind it means.

pub mod error;
pub mod keyed;
pub mod wire;

pub use error::FlinkError;
