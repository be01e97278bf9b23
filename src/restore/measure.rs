//! How fast a store is just now: small reads of objects that a restore would read anyway, bounded in bytes and time.

use std::time::{Duration, Instant};

use crate::limits;
use crate::store::{Store, StoreError};
use crate::types::{BlobName, Key, parallel};

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Seconds until a small read was answered: the middle one of all.
    pub latency: f64,
    /// Small reads that were made for it.
    pub small: u64,
    /// Bytes per second of reads that were made at once; nothing where there is too little to read.
    pub rate: Option<f64>,
    /// Those reads.
    pub large: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Measured {
    /// Seconds that so many requests, so many of them at once, for so many bytes would take.
    #[must_use]
    pub fn seconds(&self, requests: u64, at_once: u64, bytes: u64) -> f64 {
        let rounds = requests.div_ceil(at_once.max(1));
        // Fewer at once than were measured get no more out of the store; a share of its rate is what one is good for.
        let transfer = self.rate.map_or(0.0, |rate| as_f64(bytes) / rate);
        as_f64(rounds).mul_add(self.latency, transfer)
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Reads a little of these blobs, the largest of them rather. Nothing where there are none.
///
/// # Errors
/// When a blob is not there or the store does not answer.
pub(super) fn measure(store: &Store, mut blobs: Vec<(BlobName, u64)>) -> Result<Option<Measured>, StoreError> {
    blobs.sort_by_key(|(name, length)| (u64::MAX - length, *name));
    blobs.dedup();
    blobs.retain(|(_, length)| *length > 0);
    if blobs.is_empty() {
        return Ok(None);
    }
    let begun = Instant::now();
    let in_time = || begun.elapsed() < Duration::from_millis(limits::MEASURE_MS);
    let mut waits = Vec::new();
    // The first one may have to connect: it is no measure of the others.
    for (name, length) in blobs.iter().cycle().take(limits::MEASURE_READS + 1) {
        let asked = Instant::now();
        store.get_range(&Key::blob(name), 0..limits::MEASURE_SMALL.min(*length))?;
        waits.push(asked.elapsed().as_secs_f64());
        if !in_time() {
            break;
        }
    }
    if waits.len() > 1 {
        waits.remove(0);
    }
    waits.sort_by(f64::total_cmp);
    let latency = waits.get(waits.len() / 2).copied().unwrap_or_default();
    let mut measured = Measured { latency, small: waits.len() as u64, rate: None, large: 0, bytes: 0 };
    let runs = runs(&blobs);
    let bytes: u64 = runs.iter().map(|(_, range)| range.end - range.start).sum();
    if !in_time() || bytes < limits::MEASURE_CHUNK {
        return Ok(Some(measured));
    }
    measured.large = runs.len() as u64;
    let asked = Instant::now();
    parallel(limits::MEASURE_AT_ONCE, runs, |(name, range)| store.get_range(&Key::blob(&name), range).map(drop))?;
    // They waited for their answers at the same time. Where that took less than the middle wait, it says little of it.
    let whole = asked.elapsed().as_secs_f64();
    let took = (whole - latency).max(whole / 2.0).max(1e-6);
    (measured.bytes, measured.rate) = (bytes, Some(as_f64(bytes) / took));
    Ok(Some(measured))
}

/// Runs of bytes of different places, one for each reader.
fn runs(blobs: &[(BlobName, u64)]) -> Vec<(BlobName, std::ops::Range<u64>)> {
    let mut runs = Vec::new();
    for n in 0..limits::MEASURE_AT_ONCE as u64 {
        for (name, length) in blobs {
            let from = n.saturating_mul(limits::MEASURE_CHUNK);
            if from < *length && runs.len() < limits::MEASURE_AT_ONCE {
                runs.push((*name, from..from.saturating_add(limits::MEASURE_CHUNK).min(*length)));
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::StoreOptions;
    use crate::store::memory::Memory;
    use crate::types::{Digest, Uid};

    #[test]
    fn what_is_read_is_bounded_whatever_there_is() {
        let memory = Arc::new(Memory::new());
        let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
        let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", options);
        let plant = |seed: u8, length: u64| {
            let name = BlobName { digest: Digest::of(&[seed]), uid: Uid::from_bytes([1; 16]) };
            memory.plant(Key::blob(&name).as_str(), vec![seed; usize::try_from(length).unwrap()]);
            (name, length)
        };
        assert_eq!(measure(&store, vec![]).unwrap(), None);
        let small = measure(&store, vec![plant(1, 300)]).unwrap().unwrap();
        assert_eq!((small.rate, small.large, small.bytes), (None, 0, 0));
        let before = store.counters().gets.get();
        let blobs = vec![plant(2, 40 << 20), plant(3, 3), plant(4, 5 << 20)];
        let large = measure(&store, blobs).unwrap().unwrap();
        assert!(large.bytes <= limits::MEASURE_CHUNK * limits::MEASURE_AT_ONCE as u64 && large.rate.unwrap() > 0.0);
        let asked = store.counters().gets.get() - before;
        assert_eq!(asked, limits::MEASURE_READS as u64 + 1 + limits::MEASURE_AT_ONCE as u64);
        let gone = (BlobName { digest: Digest::of(b"x"), uid: Uid::from_bytes([1; 16]) }, 9);
        assert!(measure(&store, vec![gone]).is_err());
    }

    #[test]
    fn time_is_rounds_of_waiting_and_bytes() {
        let measured = Measured { latency: 0.02, small: 5, rate: Some(1e6), large: 8, bytes: 8 << 20 };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(measured.seconds(17, 16, 500_000), 0.54));
        assert!(near(Measured { rate: None, ..measured }.seconds(3, 8, 500), 0.02));
    }
}
