//! Where the tail of a table file begins: what RocksDB reads when it opens the table.
//!
//! A hint that makes cold opens fast, never a matter of correctness: a wrong answer costs a fetch. So nothing here is
//! an error. What cannot be understood (plain and cuckoo tables, damage, hostile bytes) gets the default tail, the
//! last group and what little there may be of one behind it.
//!
//! Block-based tables, format versions 0 to 7. Up to 5 the footer holds the handles of the metaindex and the index;
//! from 6 on the metaindex lies right before the footer and names the index too. Checksums are not verified: the whole
//! file's digest is, elsewhere.

use super::bytes::Cursor;
use crate::limits;

const GROUP: u64 = limits::GROUP;

const BLOCK_BASED_MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
const LEGACY_BLOCK_BASED_MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Two handles (20 bytes each at most), magic number.
const LEGACY_FOOTER: usize = 48;
/// Checksum type, 40 bytes of handles (or what format 6 has there), format version, magic number.
const FOOTER: usize = 53;
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];
/// The newest format version whose footer is known.
const NEWEST_FORMAT: u32 = 7;
/// Compression type and checksum behind each block.
const TRAILER: u64 = 5;

/// Bits of a block's restart count that say that the block has another layout: hash index, reserved, separated values.
const OTHER_LAYOUT: u32 = 0xd000_0000;
/// The one flag that does not change the layout: uniformly spread keys.
const RESTARTS: u32 = 0x0fff_ffff;

const PROPERTIES: &[u8] = b"rocksdb.properties";
/// Meta blocks that lie in the tail, by how their names begin.
const META_BLOCKS: [&[u8]; 4] = [b"rocksdb.", b"fullfilter.", b"partitionedfilter.", b"filter."];
const TAIL_START: &[u8] = b"rocksdb.tail.start.offset";
const DATA_SIZE: &[u8] = b"rocksdb.data.size";

/// Where the tail begins, or what is needed to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailPlan {
    /// The tail begins at this offset, on a group boundary, and reaches to the end of the file.
    From(u64),
    /// Ask again with the bytes from this offset (lower than before, on a group boundary) to the end. At most three
    /// times per file.
    NeedMore(u64),
}

/// Tells where the tail of a table file of `file_len` bytes begins, from its last bytes. The default tail's worth of
/// them (64 to 128 KiB) nearly always suffices.
///
/// The tail is at most [`limits::ROCKS_TAIL`] bytes.
#[must_use]
pub fn tail_start(file_len: u64, last_bytes: &[u8]) -> TailPlan {
    let default = down(file_len.saturating_sub(GROUP));
    let Some(tail) = Tail::new(file_len, last_bytes) else { return TailPlan::From(default) };
    if tail.base > 0 && last_bytes.len() < FOOTER {
        return TailPlan::NeedMore(default.min(down(tail.base.saturating_sub(1))));
    }
    tail.plan().unwrap_or(TailPlan::From(default))
}

fn down(offset: u64) -> u64 {
    offset - offset % GROUP
}

/// The lowest offset that a tail may begin at.
fn lowest(file_len: u64) -> u64 {
    down(file_len.saturating_sub(limits::ROCKS_TAIL).saturating_add(GROUP - 1))
}

/// The end of a file.
struct Tail<'a> {
    file_len: u64,
    /// Offset of the first byte in hand.
    base: u64,
    bytes: &'a [u8],
}

/// Offset and length of a block, without its trailer.
#[derive(Clone, Copy)]
struct Handle {
    offset: u64,
    len: u64,
}

impl Handle {
    fn decode(input: &mut Cursor<'_>) -> Option<Self> {
        Some(Self { offset: input.varint64()?, len: input.varint64()? })
    }

    /// Whether it lies below `end` with its trailer, and is not the null handle.
    fn fits(self, end: u64) -> bool {
        let own_end = self.offset.checked_add(self.len).and_then(|own_end| own_end.checked_add(TRAILER));
        self.len > 0 && own_end.is_some_and(|own_end| own_end <= end)
    }
}

struct Footer {
    metaindex: Handle,
    /// Format versions up to 5.
    index: Option<Handle>,
    /// Where the footer begins: no block reaches further.
    offset: u64,
}

enum Block<'a> {
    Here(&'a [u8]),
    /// It begins before the bytes in hand.
    Before(u64),
    /// It cannot be read: not within the file, too far from its end, compressed.
    Unusable,
}

impl<'a> Tail<'a> {
    fn new(file_len: u64, bytes: &'a [u8]) -> Option<Self> {
        let base = file_len.checked_sub(u64::try_from(bytes.len()).ok()?)?;
        Some(Self { file_len, base, bytes })
    }

    fn plan(&self) -> Option<TailPlan> {
        let footer = self.footer()?;
        let metaindex = match self.block(footer.metaindex, footer.offset) {
            Block::Here(block) => block,
            Block::Before(from) => return Some(TailPlan::NeedMore(from)),
            Block::Unusable => return None,
        };
        let mut start = footer.metaindex.offset;
        let mut found = |handle: Handle| {
            if handle.fits(footer.offset) {
                start = start.min(handle.offset);
            }
        };
        if let Some(index) = footer.index {
            found(index);
        }
        let mut properties = None;
        entries(metaindex, |name, value| {
            if META_BLOCKS.iter().any(|prefix| name.starts_with(prefix))
                && let Some(handle) = Handle::decode(&mut Cursor::new(value))
            {
                found(handle);
                if name == PROPERTIES {
                    properties = Some(handle);
                }
            }
        })?;
        // Partitions of an index or a filter lie before its top level, which is all that the metaindex names.
        match properties.map(|handle| self.block(handle, footer.offset)) {
            Some(Block::Here(block)) => {
                if let Some(recorded) = recorded_start(block).filter(|offset| *offset < footer.offset) {
                    start = start.min(recorded);
                }
            }
            Some(Block::Before(from)) => return Some(TailPlan::NeedMore(from)),
            Some(Block::Unusable) | None => {}
        }
        Some(TailPlan::From(down(start).max(lowest(self.file_len))))
    }

    fn footer(&self) -> Option<Footer> {
        let (rest, magic) = self.bytes.split_last_chunk::<8>()?;
        match u64::from_le_bytes(*magic) {
            LEGACY_BLOCK_BASED_MAGIC => {
                let footer = self.bytes.last_chunk::<LEGACY_FOOTER>()?;
                self.handles(footer, LEGACY_FOOTER)
            }
            BLOCK_BASED_MAGIC => {
                let (_, version) = rest.split_last_chunk::<4>()?;
                let (_, footer) = self.bytes.last_chunk::<FOOTER>()?.split_first()?;
                match u32::from_le_bytes(*version) {
                    1..=5 => self.handles(footer, FOOTER),
                    6..=NEWEST_FORMAT => self.extended(footer),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn handles(&self, part: &[u8], footer_len: usize) -> Option<Footer> {
        let mut input = Cursor::new(part);
        let metaindex = Handle::decode(&mut input)?;
        let index = Handle::decode(&mut input)?;
        Some(Footer { metaindex, index: Some(index), offset: self.footer_offset(footer_len)? })
    }

    /// Format 6 and 7: extended magic, footer checksum, base context checksum, size of the metaindex.
    fn extended(&self, part: &[u8]) -> Option<Footer> {
        let mut input = Cursor::new(part);
        if input.take(EXTENDED_MAGIC.len())? != EXTENDED_MAGIC {
            return None;
        }
        input.take(8)?;
        let len = u64::from(input.fixed32()?);
        let offset = self.footer_offset(FOOTER)?;
        let metaindex = Handle { offset: offset.checked_sub(TRAILER)?.checked_sub(len)?, len };
        Some(Footer { metaindex, index: None, offset })
    }

    fn footer_offset(&self, footer_len: usize) -> Option<u64> {
        self.file_len.checked_sub(u64::try_from(footer_len).ok()?)
    }

    fn block(&self, handle: Handle, end: u64) -> Block<'a> {
        if !handle.fits(end) {
            return Block::Unusable;
        }
        let Some(at) = handle.offset.checked_sub(self.base) else {
            let from = down(handle.offset);
            return if from < lowest(self.file_len) { Block::Unusable } else { Block::Before(from) };
        };
        let found = usize::try_from(at).ok().zip(usize::try_from(handle.len).ok()).and_then(|(at, len)| {
            let (block, trailer) = self.bytes.get(at..)?.split_at_checked(len)?;
            // Meta blocks are never compressed by RocksDB; the first byte of the trailer says so.
            (*trailer.first()? == 0).then_some(block)
        });
        found.map_or(Block::Unusable, Block::Here)
    }
}

/// Calls `visit` with each key and value of an uncompressed block. `None` if it is malformed.
fn entries(block: &[u8], mut visit: impl FnMut(&[u8], &[u8])) -> Option<()> {
    let (rest, packed) = block.split_last_chunk::<4>()?;
    let packed = u32::from_le_bytes(*packed);
    if packed & OTHER_LAYOUT != 0 {
        return None;
    }
    let restarts = usize::try_from(packed & RESTARTS).ok()?.checked_mul(4)?;
    let mut input = Cursor::new(rest.get(..rest.len().checked_sub(restarts)?)?);
    let mut key = Vec::new();
    while !input.is_empty() {
        let shared = usize::try_from(input.varint32()?).ok()?;
        let own = usize::try_from(input.varint32()?).ok()?;
        let value = usize::try_from(input.varint32()?).ok()?;
        if shared > key.len() {
            return None;
        }
        key.truncate(shared);
        key.extend_from_slice(input.take(own)?);
        visit(&key, input.take(value)?);
    }
    Some(())
}

/// Where the properties say that the tail begins. Older releases do not write it, but there data ends where it begins.
fn recorded_start(properties: &[u8]) -> Option<u64> {
    let (mut start, mut data) = (None, None);
    entries(properties, |name, value| match name {
        TAIL_START => start = Cursor::new(value).varint64(),
        DATA_SIZE => data = Cursor::new(value).varint64(),
        _ => {}
    })?;
    // 0 stands for "not known".
    start.filter(|offset| *offset > 0).or(data.filter(|len| *len > 0))
}

#[cfg(test)]
mod tests {
    use super::super::edit::writing::{prefixed, varint};
    use super::*;

    /// A file of zeros that is read from its end, as a caller would: the plan, and how often more was asked for.
    fn ask(file: &[u8], first: usize) -> (u64, usize) {
        let mut from = file.len().saturating_sub(first) as u64;
        for asked in 0..=3 {
            match tail_start(file.len() as u64, &file[usize::try_from(from).unwrap()..]) {
                TailPlan::From(start) => return (start, asked),
                TailPlan::NeedMore(more) => {
                    assert!(more < from && more % GROUP == 0);
                    from = more;
                }
            }
        }
        panic!("asked for more too often");
    }

    fn block(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        for (key, value) in entries {
            block.extend([0, u8::try_from(key.len()).unwrap(), u8::try_from(value.len()).unwrap()]);
            block.extend_from_slice(&[*key, value].concat());
        }
        block.extend([0, 0, 0, 0, 1, 0, 0, 0]);
        block
    }

    fn handle(offset: usize, len: usize) -> Vec<u8> {
        [varint(offset as u64), varint(len as u64)].concat()
    }

    /// A table: data up to `data`, then a filter, a gap, an index, the properties, the metaindex and the footer.
    fn table(version: u32, data: usize, gap: usize, properties: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut file = vec![0; data];
        let mut add = |bytes: &[u8]| {
            let handle = handle(file.len(), bytes.len());
            file.extend_from_slice(bytes);
            file.extend([0; 5]);
            handle
        };
        let filter = add(&[1; 100]);
        add(&vec![2; gap]);
        let index = add(&[3; 200]);
        let properties = add(&block(properties));
        let mut metaindex = vec![(&b"fullfilter.rocksdb.BuiltinBloomFilter"[..], &filter[..])];
        if version >= 6 {
            metaindex.push((b"rocksdb.index", &index));
        }
        metaindex.push((PROPERTIES, &properties));
        let block = block(&metaindex);
        let metaindex = add(&block);
        let mut part = if version < 6 {
            [metaindex, index].concat()
        } else {
            let len = u32::try_from(block.len()).unwrap();
            [&EXTENDED_MAGIC[..], &[9; 8], &len.to_le_bytes()].concat()
        };
        part.resize(40, 0);
        if version == 0 {
            file.extend_from_slice(&part);
            file.extend_from_slice(&LEGACY_BLOCK_BASED_MAGIC.to_le_bytes());
        } else {
            file.push(1);
            file.extend_from_slice(&part);
            file.extend_from_slice(&version.to_le_bytes());
            file.extend_from_slice(&BLOCK_BASED_MAGIC.to_le_bytes());
        }
        file
    }

    const K: usize = 1024;

    #[test]
    fn every_format_version_is_understood() {
        for version in 0..=7 {
            let file = table(version, 900 * K, 300 * K, &[]);
            assert_eq!(ask(&file, 2 * K), (896 * K as u64, 0), "{version}");
            assert_eq!(ask(&file, 0), (896 * K as u64, 1), "{version}");
            assert_eq!(ask(&file, 60), (896 * K as u64, 1), "{version}");
        }
    }

    #[test]
    fn what_is_not_understood_gets_the_last_group() {
        let default = |file: &[u8]| down(file.len() as u64 - GROUP);
        let good = table(5, 900 * K, 300 * K, &[]);
        let newer = table(8, 900 * K, 300 * K, &[]);
        let mut plain = good.clone();
        let end = plain.len();
        plain[end - 8..].copy_from_slice(&0x8242_2296_63bf_9564u64.to_le_bytes());
        let mut extended = table(6, 900 * K, 300 * K, &[]);
        let end = extended.len();
        extended[end - 52] ^= 1;
        for file in [newer, plain, extended, vec![0; 900 * K], vec![0xff; 900 * K]] {
            assert_eq!(ask(&file, 64 * K), (default(&file), 0));
        }
        for (len, start) in [(0, 0), (10, 0), (64 * K, 0), (128 * K - 1, 0), (128 * K, 64 * K), (129 * K, 64 * K)] {
            assert_eq!(ask(&vec![7; len], 128 * K), (start as u64, 0), "{len}");
        }
        // More bytes than the file is said to have.
        assert_eq!(tail_start(200 * K as u64, &vec![0; 300 * K]), TailPlan::From(128 * K as u64));
    }

    #[test]
    fn blocks_outside_the_file_do_not_count() {
        let mut file = vec![0; 900 * K];
        let at = file.len();
        let metaindex = block(&[
            (b"fullfilter.x", &handle(usize::MAX, usize::MAX)),
            (b"rocksdb.range_del", &handle(at + 10_000, 5)),
            (b"rocksdb.compression_dict", &handle(0, 0)),
            (b"unknown.to.us", &handle(3, 9)),
            (PROPERTIES, b"\xff"),
        ]);
        file.extend_from_slice(&metaindex);
        file.extend([0; 5]);
        let mut footer = [&[1][..], &handle(at, metaindex.len()), &handle(usize::MAX, 1)].concat();
        footer.resize(41, 0);
        file.extend_from_slice(&footer);
        file.extend_from_slice(&5u32.to_le_bytes());
        file.extend_from_slice(&BLOCK_BASED_MAGIC.to_le_bytes());
        assert_eq!(ask(&file, 64 * K), (896 * K as u64, 0));
    }

    #[test]
    fn properties_tell_what_the_metaindex_does_not() {
        let offset = varint(500 * K as u64);
        let recorded = |name| table(5, 900 * K, 10, &[(name, &offset)]);
        assert_eq!(ask(&recorded(TAIL_START), 2 * K), (448 * K as u64, 0));
        assert_eq!(ask(&recorded(DATA_SIZE), 2 * K), (448 * K as u64, 0));
        let both = table(5, 900 * K, 10, &[(DATA_SIZE, &varint(1)), (TAIL_START, &offset)]);
        assert_eq!(ask(&both, 2 * K), (448 * K as u64, 0));
        let silly = table(5, 900 * K, 10, &[(TAIL_START, &varint(u64::MAX))]);
        assert_eq!(ask(&silly, 2 * K), (896 * K as u64, 0));
        // 0 is no offset.
        let unknown = table(5, 900 * K, 10, &[(DATA_SIZE, &offset), (TAIL_START, &varint(0))]);
        assert_eq!(ask(&unknown, 2 * K), (448 * K as u64, 0));
        let neither = table(5, 900 * K, 10, &[(DATA_SIZE, &varint(0)), (TAIL_START, &varint(0))]);
        assert_eq!(ask(&neither, 2 * K), (896 * K as u64, 0));
    }

    #[test]
    fn a_tail_is_no_longer_than_its_bound() {
        let file = table(6, 900 * K, 9 * K * K, &[]);
        let (start, asked) = ask(&file, 2 * K);
        assert_eq!((start % GROUP, asked), (0, 0));
        let len = file.len() as u64 - start;
        assert!(len <= limits::ROCKS_TAIL && len > limits::ROCKS_TAIL - GROUP);
        // A metaindex that far off is not asked for.
        let mut far = vec![0; 10 * K * K];
        let mut footer = [&[1][..], &handle(5, 100), &handle(5, 100)].concat();
        footer.resize(41, 0);
        far.extend_from_slice(&footer);
        far.extend_from_slice(&5u32.to_le_bytes());
        far.extend_from_slice(&BLOCK_BASED_MAGIC.to_le_bytes());
        assert_eq!(ask(&far, 64 * K), (down(far.len() as u64 - GROUP), 0));
        // One that begins where the longest tail may begin is.
        let first = lowest(far.len() as u64);
        let (at, metaindex) = (usize::try_from(first).unwrap(), block(&[]));
        let mut farthest = vec![0; 10 * K * K];
        farthest[at..at + metaindex.len()].copy_from_slice(&metaindex);
        let place = handle(at, metaindex.len());
        let mut footer = [&[1][..], &place, &place].concat();
        footer.resize(41, 0);
        farthest.extend_from_slice(&footer);
        farthest.extend_from_slice(&5u32.to_le_bytes());
        farthest.extend_from_slice(&BLOCK_BASED_MAGIC.to_le_bytes());
        assert_eq!((ask(&farthest, 64 * K), farthest.len()), ((first, 1), far.len()));
    }

    #[test]
    fn blocks_of_another_layout_or_compressed_are_not_read() {
        assert!(
            entries(&block(&[(b"k", b"v")]), |key, value| assert_eq!((key, value), (&b"k"[..], &b"v"[..]))).is_some()
        );
        for bits in [0x80, 0x40, 0x10] {
            let mut other = block(&[(b"k", b"v")]);
            let end = other.len();
            other[end - 1] |= bits;
            assert!(entries(&other, |_, _| ()).is_none());
        }
        let mut uniform = block(&[(b"k", b"v")]);
        let end = uniform.len();
        uniform[end - 1] |= 0x20;
        assert!(entries(&uniform, |_, _| ()).is_some());
        let shared = [varint(1), varint(0), prefixed(b""), vec![0; 4]].concat();
        assert!(entries(&shared, |_, _| ()).is_none());
        assert!(entries(&[0xff, 0xff, 0xff, 0x0f], |_, _| ()).is_none());

        let mut file = table(5, 900 * K, 300 * K, &[]);
        let end = file.len() - FOOTER;
        file[end - 5] = 1;
        assert_eq!(ask(&file, 64 * K), (down(file.len() as u64 - GROUP), 0));
    }
}
