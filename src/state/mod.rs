//! State backends: [`keyed`] state on RocksDB, [`operator`] state in memory, and the [`serializer`]s of both. Below them a [`Database`] of
//! named column families, whose own checkpoint is the sync phase of a snapshot.
//!
//! - Options come from the caller and from [`DatabaseOptions`]; an OPTIONS file is never read: one that came out of a
//!   store could name other paths.
//! - Tables are block-based in format 5, so that tools of older releases (`ldb`, `sst_dump` from 6.6 on) read them.
//! - [`Database::open_read_only`] writes nothing, so a path under the mount will do. [`Foreign`] is for databases of other programs.

mod database;
mod error;
mod foreign;
pub mod keyed;
pub mod operator;
mod options;
pub mod serializer;

pub use database::{Batch, Database, Pair, SstWriter};
pub use error::StateError;
pub use foreign::{Count, Foreign, Visitor};
pub use keyed::{KeyedDescriptor, KeyedState, StateDescriptor};
pub use operator::{OperatorStateDescriptor, OperatorStateSnapshot, RestoredOperatorState};
pub use options::{Comparator, DatabaseOptions};
