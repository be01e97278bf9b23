//! The one async runtime of the process. Nothing above this layer knows that it exists.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

use super::error::{Result, StoreError};

/// Threads that move bytes; what waits costs none.
const THREADS: usize = 2;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// The runtime, made at its first use.
pub(super) fn runtime() -> Result<&'static Runtime> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread().worker_threads(THREADS).thread_name("ckptfs-store").enable_all().build();
    let made = made.map_err(|e| StoreError::Unsupported {
        store: "the store's threads".to_owned(),
        why: format!("they cannot be started: {e}"),
    })?;
    Ok(RUNTIME.get_or_init(|| made))
}
