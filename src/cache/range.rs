//! Reads a run of a blob in order: small ones as one stream, large ones by several range GETs at once.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};

use bytes::Bytes;

use crate::limits::{FETCH_CHUNK, FETCH_WIDTH};
use crate::store::{Store, StoreError};
use crate::types::Key;
use crate::types::sync::atomic::{AtomicUsize, Ordering};

/// Takes the next bytes.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// Leave to make extra requests; given back when dropped.
struct Extra<'a>(&'a AtomicUsize, usize);

impl<'a> Extra<'a> {
    /// As many as there are, at most `wanted`. Never waits: one stream is always allowed, so nobody starves.
    fn take(left: &'a AtomicUsize, wanted: usize) -> Self {
        let taken = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| Some(n - n.min(wanted)));
        Self(left, taken.unwrap_or_default().min(wanted))
    }
}

impl Drop for Extra<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Ordering::AcqRel);
    }
}

/// Requests for a run of this length.
pub(super) fn requests(length: u64) -> u64 {
    length.div_ceil(FETCH_CHUNK).max(1)
}

/// Gives the bytes of `range` to `sink`, in order and each once. `whole`: the blob is exactly this range, and is looked
/// at for being longer where that costs nothing.
pub(super) fn read(
    store: &Store,
    key: &Key,
    range: Range<u64>,
    whole: bool,
    streams: &AtomicUsize,
    sink: Sink<'_>,
) -> Result<(), StoreError> {
    let length = range.end.saturating_sub(range.start);
    let chunks = usize::try_from(length.div_ceil(FETCH_CHUNK)).unwrap_or(usize::MAX);
    let extra = Extra::take(streams, FETCH_WIDTH.min(chunks).saturating_sub(1));
    if extra.1 == 0 && whole {
        return store.read_to(key, length, sink);
    }
    let chunk = |n: usize| {
        let start = range.start.saturating_add((n as u64).saturating_mul(FETCH_CHUNK));
        start..start.saturating_add(FETCH_CHUNK).min(range.end)
    };
    let mut take = |bytes: &Bytes| {
        sink(bytes).map_err(|source| StoreError::Sink { object: format!("{}/{key}", store.url()), source })
    };
    if extra.1 == 0 {
        return (0..chunks).try_for_each(|n| take(&store.get_range(key, chunk(n))?));
    }

    let width = extra.1 + 1;
    std::thread::scope(|scope| {
        // A rendezvous: a reader that is ahead holds one chunk and waits, so memory is `width` chunks and no more. When this
        // closure returns early the receivers are gone, and every reader ends after the request that it is in.
        let readers: Vec<Receiver<Result<Bytes, StoreError>>> = (0..width)
            .map(|first| {
                let (give, got) = sync_channel(0);
                let reader = move || {
                    for n in (first..chunks).step_by(width) {
                        let bytes = store.get_range(key, chunk(n));
                        let failed = bytes.is_err();
                        if give.send(bytes).is_err() || failed {
                            return;
                        }
                    }
                };
                // Without a thread its chunks are read here.
                let _ = std::thread::Builder::new().name("fetch".to_owned()).spawn_scoped(scope, reader);
                got
            })
            .collect();
        (0..chunks).try_for_each(|n| {
            let bytes = readers.get(n % width).and_then(|r| r.recv().ok());
            take(&bytes.unwrap_or_else(|| store.get_range(key, chunk(n)))?)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::StoreOptions;
    use crate::store::memory::Memory;
    use crate::types::{BlobName, Digest, Uid};

    #[test]
    fn large_blobs_arrive_in_order_by_ranges_and_without_leave_as_one_stream() {
        let chunk = usize::try_from(FETCH_CHUNK).unwrap();
        let data: Vec<u8> = (0..5 * chunk + 123).map(|i| (i / 7).to_le_bytes()[0]).collect();
        let name = BlobName { digest: Digest::of(&data), uid: Uid::random().unwrap() };
        let key = Key::blob(&name);
        let memory = Arc::new(Memory::new());
        memory.plant(key.as_str(), data.clone());
        let store = Store::from_backend(memory, "memory://", StoreOptions::default());
        for (leave, gets) in [(100, 6), (1, 6), (0, 1)] {
            let streams = AtomicUsize::new(leave);
            let before = store.counters().gets.get();
            let mut got = Vec::new();
            let mut sink = |b: &[u8]| {
                got.extend_from_slice(b);
                Ok(())
            };
            read(&store, &key, 0..data.len() as u64, true, &streams, &mut sink).unwrap();
            assert!(got == data);
            assert_eq!(store.counters().gets.get() - before, gets, "{leave}");
            assert_eq!(streams.load(Ordering::Acquire), leave);
        }
        let mut got = Vec::new();
        let mut sink = |b: &[u8]| {
            got.extend_from_slice(b);
            Ok(())
        };
        read(&store, &key, 9..data.len() as u64 - 9, false, &AtomicUsize::new(3), &mut sink).unwrap();
        assert!(got == data[9..data.len() - 9]);
    }

    #[test]
    fn a_failing_sink_and_a_short_blob_end_it() {
        let chunk = usize::try_from(FETCH_CHUNK).unwrap();
        let memory = Arc::new(Memory::new());
        let key = Key::blob(&BlobName { digest: Digest::of(b""), uid: Uid::random().unwrap() });
        memory.plant(key.as_str(), vec![1; 4 * chunk]);
        let store = Store::from_backend(memory, "memory://", StoreOptions::default());
        let streams = AtomicUsize::new(8);
        let mut full = |_: &[u8]| Err(io::Error::from(io::ErrorKind::StorageFull));
        let end = 4 * FETCH_CHUNK;
        let e = read(&store, &key, 0..end, true, &streams, &mut full).unwrap_err();
        assert!(matches!(e, StoreError::Sink { source, .. } if source.kind() == io::ErrorKind::StorageFull));
        assert!(read(&store, &key, 0..end + 1, true, &streams, &mut |_| Ok(())).is_err());
        assert_eq!(streams.load(Ordering::Acquire), 8);
    }
}
