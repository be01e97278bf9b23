//! What the demo's job keeps in RocksDB: words and their counts, the same per file, and how far the text was read. All three change
//! in one batch, so whatever a checkpoint holds fits together, and counting goes on from it exactly.

use std::collections::BTreeMap;
use std::path::Path;

use ckptfs::error::{Error, Kind, Result};
use ckptfs::state::{Counters, Database, DatabaseOptions, StateError, decode_count};

use super::source::{Position, words};

/// Word to count: small and hot, rewritten all the time.
const WORDS: &str = "words";
/// File index and word to count: grows at its end, so old SSTs stay as they are.
const FILES: &str = "files";
/// How far the text was read.
const PLACE: &str = "place";
const FAMILIES: [&str; 3] = [WORDS, FILES, PLACE];
const AT: &[u8] = b"at";

/// Small, so that a demo of a minute has tables to share.
const WRITE_BUFFER: usize = 8 << 20;
const TABLE_SIZE: u64 = 2 << 20;

/// The job's state.
#[derive(Debug)]
pub(crate) struct Counts(Database);

/// Words and their counts, in the order of their bytes.
pub(crate) type Tally = BTreeMap<Vec<u8>, u64>;

/// The library's border for errors of the state layer.
pub(crate) fn failed(e: StateError) -> Error {
    Error::with_source(e.kind(), e.to_string(), e)
}

fn options(create: bool) -> DatabaseOptions {
    DatabaseOptions { create, write_buffer: WRITE_BUFFER, table_size: TABLE_SIZE, ..DatabaseOptions::default() }
}

impl Counts {
    /// Opens the state to count on, or begins one.
    pub(crate) fn open(path: &Path, create: bool) -> Result<Self> {
        Database::open(path, &FAMILIES, &options(create)).map(Self).map_err(failed)
    }

    /// Opens a checkpoint where it lies.
    pub(crate) fn open_read_only(path: &Path) -> Result<Self> {
        Database::open_read_only(path, &FAMILIES, &options(false)).map(Self).map_err(failed)
    }

    /// How far the text was read.
    pub(crate) fn position(&self) -> Result<Position> {
        match self.0.get(PLACE, AT).map_err(failed)? {
            None => Ok(Position::default()),
            Some(bytes) => Position::decode(&bytes).ok_or_else(|| {
                Error::new(Kind::Damage, format!("the position in {} is damaged", self.0.path().display()))
            }),
        }
    }

    /// Counts pieces of files and moves the position, in one step.
    pub(crate) fn add(&self, pieces: &[(u64, Vec<u8>)], to: Position) -> Result<()> {
        let mut by_word = Counters::new(WORDS);
        let mut by_file = Counters::new(FILES);
        let mut key = Vec::new();
        for (file, piece) in pieces {
            for word in words(piece) {
                by_word.add(word, 1);
                key.clear();
                key.extend_from_slice(&file.to_be_bytes());
                key.extend_from_slice(word);
                by_file.add(&key, 1);
            }
        }
        let mut batch = self.0.batch();
        by_word.write_to(&mut batch).map_err(failed)?;
        by_file.write_to(&mut batch).map_err(failed)?;
        batch.put(PLACE, AT, &to.encode()).map_err(failed)?;
        batch.commit().map_err(failed)
    }

    /// Counts the first word once too often: what the comparison at the end must find.
    pub(crate) fn corrupt(&self) -> Result<()> {
        let first = self.0.scan(WORDS).map_err(failed)?.next();
        let Some((word, _)) = first.transpose().map_err(failed)? else { return Ok(()) };
        let of_file = [&0u64.to_be_bytes()[..], &word].concat();
        let mut batch = self.0.batch();
        for (family, key) in [(WORDS, &*word), (FILES, &of_file)] {
            let mut counters = Counters::new(family);
            counters.add(key, 1);
            counters.write_to(&mut batch).map_err(failed)?;
        }
        batch.commit().map_err(failed)
    }

    /// RocksDB's own checkpoint.
    pub(crate) fn checkpoint(&self, directory: &Path) -> Result<()> {
        self.0.checkpoint(directory).map_err(failed)
    }

    /// All words.
    pub(crate) fn tally(&self) -> Result<Tally> {
        let mut out = Tally::new();
        for pair in self.0.scan(WORDS).map_err(failed)? {
            let (word, value) = pair.map_err(failed)?;
            let count = decode_count(self.0.path(), &word, &value).map_err(failed)?;
            out.insert(word.into_vec(), count);
        }
        Ok(out)
    }

    /// The counts of all files, added up: they must be [`Counts::tally`].
    pub(crate) fn tally_of_files(&self) -> Result<Tally> {
        let mut out = Tally::new();
        for pair in self.0.scan(FILES).map_err(failed)? {
            let (key, value) = pair.map_err(failed)?;
            let count = decode_count(self.0.path(), &key, &value).map_err(failed)?;
            let word = key.get(8..).unwrap_or_default();
            let sum = out.entry(word.to_vec()).or_insert(0u64);
            *sum = sum.saturating_add(count);
        }
        Ok(out)
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

    #[test]
    fn state_fits_together_and_one_wrong_count_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        assert_eq!(Counts::open(&path, false).unwrap_err().kind(), Kind::NotFound);
        let counts = Counts::open(&path, true).unwrap();
        assert_eq!(counts.position().unwrap(), Position::default());
        let at = Position { file: 1, byte: 5, done: 12 };
        counts.add(&[(0, b"a b a".to_vec()), (1, b"b c".to_vec())], at).unwrap();
        counts.add(&[(1, b"c".to_vec())], at).unwrap();
        let tally = Tally::from([(b"a".to_vec(), 2), (b"b".to_vec(), 2), (b"c".to_vec(), 2)]);
        assert_eq!(counts.tally().unwrap(), tally);
        assert_eq!(counts.tally_of_files().unwrap(), tally);
        let chk = dir.path().join("chk");
        counts.checkpoint(&chk).unwrap();
        counts.corrupt().unwrap();

        let kept = Counts::open_read_only(&chk).unwrap();
        assert_eq!((kept.tally().unwrap(), kept.position().unwrap()), (tally.clone(), at));
        let wrong = counts.tally().unwrap();
        assert_eq!(difference(&wrong, &tally).unwrap(), "\"a\" was counted 3 times and is there 2 times");
        assert_eq!(counts.tally_of_files().unwrap(), wrong, "only a recount can find it");
        assert_eq!(difference(&tally, &tally), None);
        assert_eq!(difference(&Tally::new(), &tally).unwrap(), "\"a\" was counted 0 times and is there 2 times");
    }
}
