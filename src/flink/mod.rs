//! Reads Flink's checkpoints: what a `_metadata` file says ([`metadata`]; [`wire`] has its primitives), and what the state behind it means.
//!
//! [`found`] looks what lies in a directory, [`place`] where the files are that a `_metadata` names, [`plan`] what an import stores of
//! them, and [`relative`] makes the `_metadata` that Flink restores from. [`keyed`] decodes the rows of keyed state.

pub mod error;
pub mod found;
pub mod keyed;
pub mod metadata;
mod parts;
pub mod place;
pub mod plan;
pub mod relative;
pub mod wire;

pub use error::FlinkError;

#[cfg(test)]
mod tests;
