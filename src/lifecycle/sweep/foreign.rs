//! A second look at the blobs that nobody knows: what another sweep has deleted and forgotten since the list is nothing to tell.

use crate::lifecycle::machine::{Machine, Reply, Request, Step, headed, tri};
use crate::limits;
use crate::types::{BlobName, Key};

/// The machine that tells which blobs are still there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StillThere {
    rest: Vec<(BlobName, u64)>,
    asked: Vec<(BlobName, u64)>,
    there: Vec<(BlobName, u64)>,
}

impl StillThere {
    /// A machine that asks for each of these.
    #[must_use]
    pub fn new(mut blobs: Vec<(BlobName, u64)>) -> Self {
        blobs.reverse();
        Self { rest: blobs, asked: Vec::new(), there: Vec::new() }
    }
}

impl Machine for StillThere {
    type Output = Vec<(BlobName, u64)>;

    fn step(&mut self, replies: Vec<Reply>) -> Step<Self::Output> {
        let found = tri!(headed(replies));
        let asked = std::mem::take(&mut self.asked);
        self.there.extend(asked.into_iter().zip(found).filter(|(_, found)| found.is_some()).map(|(blob, _)| blob));
        self.asked = self.rest.split_off(self.rest.len().saturating_sub(limits::SWEEP_BATCH));
        self.asked.reverse();
        if self.asked.is_empty() {
            return Step::Done(Ok(std::mem::take(&mut self.there)));
        }
        Step::Ask(self.asked.iter().map(|(name, _)| Request::Head(Key::blob(name))).collect())
    }
}
