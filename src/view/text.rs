//! Manifests as text: what was decoded, as indented JSON with a line feed at the end.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::error::ViewError;
use super::node::Text;
use crate::error::Kind;
use crate::format::{CheckpointManifest, TaskManifest};

struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(value: &impl Serialize, mut to: impl Write) -> Result<(), ViewError> {
    let failed = |e: String| ViewError::Other(Kind::Other, format!("cannot show a manifest as text: {e}"));
    serde_json::to_writer_pretty(&mut to, value).map_err(|e| failed(e.to_string()))?;
    to.write_all(b"\n").map_err(|e| failed(e.to_string()))
}

fn write_either(checkpoint: &CheckpointManifest, task: Option<&TaskManifest>, to: impl Write) -> Result<(), ViewError> {
    match task {
        Some(task) => write(task, to),
        None => write(checkpoint, to),
    }
}

/// Length of the text in bytes, without making it.
pub(super) fn length(checkpoint: &CheckpointManifest, task: Option<&TaskManifest>) -> Result<u64, ViewError> {
    let mut count = Count(0);
    write_either(checkpoint, task, &mut count)?;
    Ok(count.0)
}

/// The text. `task` is the subtask's manifest, where it is of one.
pub(super) fn bytes(text: &Text, task: Option<&TaskManifest>) -> Result<Arc<[u8]>, ViewError> {
    let mut out = Vec::with_capacity(usize::try_from(text.size).unwrap_or(0));
    write_either(&text.checkpoint.manifest, task, &mut out)?;
    Ok(out.into())
}
