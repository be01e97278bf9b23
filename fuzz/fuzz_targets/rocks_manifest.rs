//! What RocksDB stores of its own files, by the first byte: a MANIFEST as it is, one whose checksums are put right first (else nearly every
//! change would end there), the end of a table, and names.
#![no_main]

use ckptfs::format::rocks::{TailPlan, cut_outward, file_kind, parse_current, read_manifest, tail_start};
use ckptfs::limits;
use libfuzzer_sys::fuzz_target;

/// An edit of an atomic group takes 10 bytes at least with its record's header, and some 300 until the group is whole, in a list with room
/// for a quarter more.
const TIMES: usize = 40;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
const GROUP: usize = 64 << 10;

/// RocksDB's masked CRC-32C.
fn masked(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
    };
    let crc = !bytes.iter().fold(!0, step);
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut log = bytes.to_vec();
    for block in log.chunks_mut(BLOCK) {
        let mut rest = &mut *block;
        while rest.len() >= HEADER {
            let kind = rest[6];
            // Kinds of a recycled log have its number behind them, which counts as header.
            let header = if matches!(kind, 5..=8 | 11 | 131) { HEADER + 4 } else { HEADER };
            let length = header + usize::from(u16::from_le_bytes([rest[4], rest[5]]));
            if length > rest.len() || (kind == 0 && length == HEADER) {
                break;
            }
            let sum = masked(&rest[HEADER - 1..length]).to_le_bytes();
            rest[..4].copy_from_slice(&sum);
            rest = rest.split_at_mut(length).1;
        }
    }
    log
}

fn manifest(bytes: &[u8]) {
    let Ok(live) = ckptfs_fuzz::within(TIMES, bytes.len(), || read_manifest(bytes)) else { return };
    assert!(live.applied_len <= bytes.len() as u64);
    assert!(live.ssts.len() + live.blob_files.len() <= limits::ROCKS_FILES);
    assert!(live.ssts.is_sorted_by(|a, b| a.number <= b.number));
    for table in &live.ssts {
        let bounds = cut_outward(&table.smallest, &table.largest);
        assert!(bounds.smallest.len() <= limits::KEY_BOUND && bounds.smallest.as_slice() <= table.smallest.as_slice());
        if let Some(largest) = &bounds.largest {
            assert!(largest.len() <= limits::KEY_BOUND && largest.as_slice() >= table.largest.as_slice());
        }
    }
}

/// A table that begins with so many zeros, of which ever more is shown.
fn table(bytes: &[u8]) {
    let Some((zeros, end)) = bytes.split_first_chunk() else { return };
    let zeros = usize::from(u16::from_be_bytes(*zeros)) * 16;
    let file = [&vec![0; zeros], end].concat();
    let length = file.len() as u64;
    let mut from = file.len().saturating_sub(GROUP) / GROUP * GROUP;
    for _ in 0..4 {
        match ckptfs_fuzz::within(1, file.len(), || tail_start(length, &file[from..])) {
            TailPlan::From(start) => {
                assert!(start <= length && start.is_multiple_of(limits::GROUP));
                assert!(length - start <= limits::ROCKS_TAIL);
                // Of a length that is not the file's nothing is known, and nothing goes wrong.
                let _ = (tail_start(u64::MAX, &file[from..]), tail_start(1, &file[from..]));
                return;
            }
            TailPlan::NeedMore(start) => {
                assert!(start < from as u64 && start.is_multiple_of(limits::GROUP));
                from = usize::try_from(start).unwrap();
            }
        }
    }
    panic!("more was asked for than three times");
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 4 {
        0 => manifest(bytes),
        1 => manifest(&with_checksums(bytes)),
        2 => table(bytes),
        _ => {
            let _ = parse_current(bytes);
            let _ = file_kind(&String::from_utf8_lossy(bytes));
        }
    }
});
