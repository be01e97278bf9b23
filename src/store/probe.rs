//! Does the store keep its word? A race for one key, many times over. The protocol rests on exactly one winner, and
//! some servers take every create-if-absent for a plain put.

use std::sync::Barrier;

use bytes::Bytes;

use super::error::{Result, StoreError};
use super::{Created, Store};
use crate::types::Uid;

/// Where the probe's objects lie.
pub(super) const DIRECTORY: &str = "probe/";

const CREATORS: usize = 8;
const ROUNDS: usize = 20;
const BODY_LEN: u64 = 64;

/// Rounds that run at once: losers of a race wait a second each on SeaweedFS, one round after the other half a minute.
const LANES: usize = 10;

impl Store {
    /// Races 8 creators for one key, 20 times: exactly one must win each time, and get and list must agree with it.
    /// Removes its objects.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] when the store does not keep create-if-absent; otherwise why it could not be tried.
    pub fn probe(&self) -> Result<()> {
        let uid = Uid::random().map_err(|e| StoreError::Unsupported {
            store: self.url().to_owned(),
            why: format!("the kernel gives no randomness: {e}"),
        })?;
        let directory = format!("{DIRECTORY}{uid}");
        let keys: Vec<String> = (0..ROUNDS).map(|round| format!("{directory}/{round:02}")).collect();
        let lane = |keys: &[String]| keys.iter().try_for_each(|key| self.probe_round(&directory, key));
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let lanes: Vec<_> = keys.chunks(ROUNDS / LANES).map(|keys| scope.spawn(move || lane(keys))).collect();
            let broken = |_| Err(self.unsafe_store("a racer broke down"));
            lanes.into_iter().map(|lane| lane.join().unwrap_or_else(broken)).collect()
        });
        let result: Result<()> = results.into_iter().collect();
        let texts: Vec<&str> = keys.iter().map(String::as_str).collect();
        let cleaned = self.delete_at(&texts);
        result.and(cleaned)
    }

    fn unsafe_store(&self, saw: &str) -> StoreError {
        StoreError::Unsupported {
            store: self.url().to_owned(),
            why: format!(
                "it does not keep create-if-absent ({saw}), so two checkpoints could overwrite each other; use a server that does \
                 (SeaweedFS from 4.48 with one filer, AWS S3, MinIO) or a file:// store"
            ),
        }
    }

    fn probe_round(&self, directory: &str, key: &str) -> Result<()> {
        let barrier = Barrier::new(CREATORS);
        let race = |creator: usize| {
            let body = Bytes::from(format!("creator {creator}"));
            barrier.wait();
            self.create_at(key, body.clone(), false).map(|created| (body, created))
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..CREATORS).map(|creator| scope.spawn(move || race(creator))).collect();
            racers.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let mut winners = Vec::new();
        let mut told = Vec::new();
        for answer in answers {
            let answer = answer.unwrap_or_else(|_| Err(self.unsafe_store("a racer broke down")));
            match answer? {
                (body, Created::New | Created::Ours) => winners.push(body),
                (_, Created::Other(body)) => told.push(body),
            }
        }
        let [winner] = winners.as_slice() else {
            return Err(self.unsafe_store(&format!("{} of {CREATORS} creators of one key won", winners.len())));
        };
        if told.iter().any(|body| body != winner) || self.get_at(key, BODY_LEN)?.as_ref() != Some(winner) {
            return Err(self.unsafe_store("readers saw other bytes than the winner's"));
        }
        let listed = self.retrying(0, || {
            self.counters().lists.inc();
            self.backend().list(directory, None, usize::MAX)
        })?;
        if !listed.iter().any(|l| l.key == key && l.size == winner.len() as u64) {
            return Err(self.unsafe_store("a list did not show an object that had just been created"));
        }
        Ok(())
    }
}
