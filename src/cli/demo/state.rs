//! The keyed state of the demo's job: how often each word came, for ever and in the windows that are still open, with a timer for each of those.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ckptfs::error::{Error, Kind, Result};
use ckptfs::state::DatabaseOptions;
use ckptfs::state::keyed::{
    Declaration, KeyedBackend, KeyedConfig, KeyedDescriptor, KeyedState, TimeDomain, Timers, ValueState,
};
use ckptfs::state::serializer::{LongSerializer, StringSerializer, TimeWindow, TimeWindowSerializer, VoidNamespace};
use ckptfs::types::{KeyGroupRange, now_ms};

use super::records::MAX_PARALLELISM;

const TOTAL: &str = "total";
const WINDOW: &str = "window";

/// Small, so that a demo of seconds has tables to share.
const WRITE_BUFFER: usize = 8 << 20;
const TABLE_SIZE: u64 = 2 << 20;

/// Words and their counts, in the order of their bytes.
pub(crate) type Tally = BTreeMap<Vec<u8>, u64>;

/// Sizes of the databases.
pub(crate) fn database() -> DatabaseOptions {
    DatabaseOptions { create: true, write_buffer: WRITE_BUFFER, table_size: TABLE_SIZE, ..DatabaseOptions::default() }
}

fn config(range: KeyGroupRange) -> KeyedConfig<StringSerializer> {
    KeyedConfig {
        serializer: StringSerializer,
        range,
        max_parallelism: MAX_PARALLELISM,
        options: database(),
        clock: Arc::new(now_ms),
    }
}

/// The state of one counting subtask.
pub(crate) struct Counts {
    backend: KeyedBackend<StringSerializer>,
    total: ValueState<VoidNamespace, LongSerializer>,
    window: ValueState<TimeWindowSerializer, LongSerializer>,
    timers: Timers<StringSerializer, TimeWindowSerializer>,
}

impl Counts {
    /// Begins one in a directory that is not there yet.
    pub(crate) fn create(directory: &Path, range: KeyGroupRange) -> Result<Self> {
        Self::of(KeyedBackend::create(directory, config(range))?)
    }

    /// Goes on with what a checkpoint had.
    pub(crate) fn open(directory: &Path, descriptor: &KeyedDescriptor) -> Result<Self> {
        Self::of(KeyedBackend::open(directory, descriptor, config(descriptor.range))?)
    }

    /// Opens it where it lies, to read it.
    pub(crate) fn open_read_only(directory: &Path, descriptor: &KeyedDescriptor) -> Result<Self> {
        Self::of(KeyedBackend::open_read_only(directory, descriptor, config(descriptor.range))?)
    }

    fn of(backend: KeyedBackend<StringSerializer>) -> Result<Self> {
        Ok(Self {
            total: backend.value(Declaration::new(TOTAL, LongSerializer))?,
            window: backend.value(Declaration::with_namespace(WINDOW, TimeWindowSerializer, LongSerializer))?,
            timers: backend.timers(TimeDomain::Event, WINDOW, TimeWindowSerializer)?,
            backend,
        })
    }

    pub(crate) fn backend(&mut self) -> &mut dyn KeyedState {
        &mut self.backend
    }

    /// Counts a word so many times more.
    pub(crate) fn add(&self, word: &String, count: i64, window: &TimeWindow) -> Result<()> {
        self.backend.set_current_key(word)?;
        let total = self.total.get(&())?.unwrap_or_default();
        self.total.set(&(), &total.saturating_add(count))?;
        let before = self.window.get(window)?;
        self.window.set(window, &before.unwrap_or_default().saturating_add(count))?;
        if before.is_none() {
            self.timers.register(window, window.end.saturating_sub(1))?;
        }
        Ok(())
    }

    /// The counts of the windows that are over; they are forgotten, the totals stay.
    pub(crate) fn fire(&self, time: i64) -> Result<Vec<(TimeWindow, String, i64)>> {
        let mut fired = Vec::new();
        for due in self.timers.pop_until(time)? {
            self.backend.set_current_key(&due.key)?;
            let count = self.window.get(&due.namespace)?.ok_or_else(|| {
                Error::new(Kind::Other, format!("a timer of {:?} fired for a window without it", due.key))
            })?;
            self.window.clear(&due.namespace)?;
            fired.push((due.namespace, due.key, count));
        }
        Ok(fired)
    }

    /// Counts one of the first word for the second: no sum shows it, so that the comparison at the end must.
    pub(crate) fn corrupt(&self) -> Result<()> {
        let words = self.backend.keys(TOTAL, &VoidNamespace, &())?;
        let [from, to, ..] = words.as_slice() else { return Ok(()) };
        for (word, more) in [(from, -1), (to, 1)] {
            self.backend.set_current_key(word)?;
            let total = self.total.get(&())?.unwrap_or_default();
            self.total.set(&(), &total.saturating_add(more))?;
        }
        Ok(())
    }

    /// Adds all its words to a tally, which must not have them: a word is of one subtask.
    pub(crate) fn tally_into(&self, tally: &mut Tally) -> Result<()> {
        for word in self.backend.keys(TOTAL, &VoidNamespace, &())? {
            self.backend.set_current_key(&word)?;
            let count = self.total.get(&())?.and_then(|n| u64::try_from(n).ok());
            let count = count.ok_or_else(|| Error::new(Kind::Damage, format!("the word {word:?} has no count")))?;
            if let Some(other) = tally.insert(word.into_bytes(), count) {
                return Err(Error::new(Kind::Damage, format!("two subtasks have a word, {count} and {other} times")));
            }
        }
        Ok(())
    }
}

/// The first word on which two tallies differ, in words.
pub(crate) fn difference(counted: &Tally, recounted: &Tally) -> Option<String> {
    let words = counted.keys().chain(recounted.keys());
    let differs = |w: &&Vec<u8>| counted.get(*w) != recounted.get(*w);
    let first = words.filter(differs).min()?;
    let times = |t: &Tally| t.get(first).copied().unwrap_or(0);
    let word = String::from_utf8_lossy(first);
    Some(format!("{word:?} was counted {} times and is there {} times", times(counted), times(recounted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(counts: &Counts) -> Tally {
        let mut tally = Tally::new();
        counts.tally_into(&mut tally).unwrap();
        tally
    }

    #[test]
    fn totals_stay_windows_fire_once_and_one_wrong_count_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let all = KeyGroupRange::of_subtask(MAX_PARALLELISM, 1, 0).unwrap();
        let path = dir.path().join("db");
        let mut counts = Counts::create(&path, all).unwrap();
        let window = |start| TimeWindow { start, end: start + 10 };
        for (word, count, start) in [("a", 1, 0), ("b", 2, 0), ("a", 1, 0), ("c", 2, 10)] {
            counts.add(&word.to_owned(), count, &window(start)).unwrap();
        }
        assert_eq!(counts.fire(8).unwrap(), []);
        let mut fired = counts.fire(9).unwrap();
        fired.sort_by(|a, b| a.1.cmp(&b.1));
        assert_eq!(fired, [(window(0), "a".to_owned(), 2), (window(0), "b".to_owned(), 2)]);
        let expected = Tally::from([(b"a".to_vec(), 2), (b"b".to_vec(), 2), (b"c".to_vec(), 2)]);
        assert_eq!(tally(&counts), expected);

        let descriptor = counts.backend().descriptor();
        let checkpoint = dir.path().join("chk");
        counts.backend().checkpoint(&checkpoint).unwrap();
        counts.corrupt().unwrap();
        let kept = Counts::open_read_only(&checkpoint, &descriptor).unwrap();
        assert_eq!(tally(&kept), expected);
        assert_eq!(kept.tally_into(&mut expected.clone()).unwrap_err().kind(), Kind::Damage);
        let spoiled = tally(&counts);
        assert_eq!(spoiled.values().sum::<u64>(), expected.values().sum::<u64>());
        let mut apart: Vec<u64> = spoiled.values().copied().collect();
        apart.sort_unstable();
        assert_eq!(apart, [1, 2, 3]);
        let wrong = difference(&spoiled, &expected).unwrap();
        assert!(
            wrong.ends_with("1 times and is there 2 times") || wrong.ends_with("3 times and is there 2 times"),
            "{wrong}"
        );
        assert_eq!(difference(&expected, &expected), None);
        assert_eq!(difference(&Tally::new(), &expected).unwrap(), "\"a\" was counted 0 times and is there 2 times");
        drop(kept);
        let goes_on = Counts::open(&checkpoint, &descriptor).unwrap();
        assert_eq!(goes_on.fire(i64::MAX - 1).unwrap(), [(window(10), "c".to_owned(), 2)]);
    }
}
