//! Does the store keep its word? A race for one key, many times over. The protocol rests on exactly one winner, and
//! some servers take every create-if-absent for a plain put.

use std::sync::{Condvar, Mutex, PoisonError};

use bytes::Bytes;

use super::error::{Result, StoreError};
use super::{Created, Store};
use crate::types::{Uid, parallel};

/// Where the probe's objects lie.
pub(super) const DIRECTORY: &str = "probe/";

const CREATORS: usize = 8;
const ROUNDS: usize = 20;
const BODY_LEN: u64 = 64;

/// Rounds that run at once: losers of a race wait a second each on SeaweedFS, one round after the other half a minute.
const LANES: usize = 10;

/// Lets all racers begin at once, or none.
#[derive(Debug, Default)]
struct Start {
    /// Nothing: they wait.
    go: Mutex<Option<bool>>,
    said: Condvar,
}

impl Start {
    fn wait(&self) -> bool {
        let go = self.go.lock().unwrap_or_else(PoisonError::into_inner);
        let go = self.said.wait_while(go, |go| go.is_none()).unwrap_or_else(PoisonError::into_inner);
        *go == Some(true)
    }

    fn go(&self, all: bool) {
        *self.go.lock().unwrap_or_else(PoisonError::into_inner) = Some(all);
        self.said.notify_all();
    }
}

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
        let result = parallel(LANES, keys.chunks(ROUNDS / LANES).collect(), lane).map(drop);
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
        let start = Start::default();
        let race = |creator: usize| {
            let body = Bytes::from(format!("creator {creator}"));
            match start.wait() {
                true => self.create_at(key, body.clone(), false).map(|created| Some((body, created))),
                false => Ok(None),
            }
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let race = &race;
            let racer = |creator| std::thread::Builder::new().spawn_scoped(scope, move || race(creator));
            let racers: std::io::Result<Vec<_>> = (0..CREATORS).map(racer).collect();
            // Fewer would be no race. Those that wait are let go in any case.
            start.go(racers.is_ok());
            let racers = racers.map_err(|e| StoreError::Unsupported {
                store: self.url().to_owned(),
                why: format!("whether it keeps create-if-absent cannot be tried: no thread can be made ({e}); raise the limit of processes: ulimit -u"),
            })?;
            Ok::<_, StoreError>(racers.into_iter().map(std::thread::ScopedJoinHandle::join).collect())
        })?;
        let mut winners = Vec::new();
        let mut told = Vec::new();
        for answer in answers {
            let answer = answer.unwrap_or_else(|_| Err(self.unsafe_store("a racer broke down")));
            match answer? {
                Some((body, Created::New | Created::Ours)) => winners.push(body),
                Some((_, Created::Other(body))) => told.push(body),
                None => {}
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
