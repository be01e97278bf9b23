//! Bytes that are damaged, cut off, or made to do harm: an error or a value, never a panic, and never more than the bytes pay for.

use proptest::prelude::*;

use super::super::{ChannelHandle, KeyedHandle, LocalFile, MasterState, Operator, OperatorState, Subtask, read, write};
use super::small;
use super::values::every_kind;
use crate::error::Kind;
use crate::flink::FlinkError;
use crate::limits;

/// What is taken has to be worth its bytes: whatever it has more than once was written somewhere.
fn survives(bytes: &[u8]) {
    if let Ok(value) = read(bytes) {
        assert!(write(&value).unwrap() == bytes, "it is not written as it was read");
    }
}

fn refused(bytes: &[u8]) -> String {
    let error = read(bytes).unwrap_err();
    assert_eq!(error.kind(), Kind::Damage, "{error}");
    error.to_string()
}

#[test]
fn every_file_that_is_cut_off_is_refused() {
    let real = ["flink120-p2-savepoint-native/tree/savepoint-49fac6-37c3a6a219ec/_metadata"];
    let real = real.map(|path| std::fs::read(super::committed().join(path)).unwrap());
    let made = (2..=6).map(|version| write(&every_kind(version)).unwrap());
    for whole in [small()].into_iter().chain(real).chain(made) {
        assert!(read(&whole).is_ok());
        for end in 0..whole.len() {
            refused(&whole[..end]);
        }
    }
}

#[test]
fn extreme_numbers_anywhere_do_no_harm() {
    let long = [0, -1, i64::MAX, i64::MIN].map(|number| number.to_be_bytes().to_vec());
    let short = [0, -1, 1, i32::MAX, i32::MIN, 0x8000].map(|number| number.to_be_bytes().to_vec());
    // Of a real file some operators are enough: the others are like them.
    let mut real = read(&small()).unwrap();
    real.operators.truncate(2);
    for value in [real, every_kind(6)] {
        let whole = write(&value).unwrap();
        let mut changed = whole.clone();
        for at in 0..whole.len() {
            for extreme in long.iter().chain(&short) {
                let window = at..at + extreme.len();
                if window.end <= whole.len() {
                    changed[window.clone()].copy_from_slice(extreme);
                    survives(&changed);
                    changed[window.clone()].copy_from_slice(&whole[window]);
                }
            }
        }
    }
}

#[test]
fn nothing_takes_much_more_memory_than_bytes() {
    // In the file at least: see the readers.
    for (size, least) in [
        (size_of::<LocalFile>(), 3),
        (size_of::<Subtask>(), 4),
        (size_of::<OperatorState>(), 7),
        (size_of::<MasterState>(), 8),
        (size_of::<ChannelHandle>(), 18),
        (size_of::<KeyedHandle>(), 31),
        (size_of::<Operator>(), 29),
    ] {
        assert!(size <= 32 * least, "{size} {least}");
    }
}

/// A file of version 3 up to the first keyed handle of its only subtask.
fn up_to_a_handle() -> Vec<u8> {
    let mut bytes = b"\x49\x60\x67\x2D\0\0\0\x03".to_vec();
    bytes.extend([0; 8 + 4]);
    bytes.extend([0, 0, 0, 1]);
    bytes.extend([0; 16 + 4 + 4 + 1]);
    bytes.extend([0, 0, 0, 1]);
    bytes.extend([0; 4 + 4 + 4]);
    bytes
}

#[test]
fn handles_in_handles_end_somewhere() {
    let changelog = b"\x08\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x01";
    let stream = b"\x03\0\0\0\0\0\0\0\0";
    for (start, nested) in [(&b""[..], &changelog[..]), (b"", stream), (&changelog[..], stream)] {
        let bomb = [&up_to_a_handle()[..], start, &nested.repeat(100_000)].concat();
        let said = refused(&bomb);
        assert!(said.contains("more than 8 deep"), "{said}");
    }
    // As deep as may be: closed from the inside.
    for (depth, ends) in [(limits::FLINK_NESTING, true), (limits::FLINK_NESTING + 1, false)] {
        // No changes, a materialization and an empty id.
        let close = [0; 4 + 8 + 2];
        let innermost = [&changelog[..changelog.len() - 1], &[0], &close].concat();
        let handle = [&changelog.repeat(depth - 1)[..], &innermost, &close.repeat(depth - 1)].concat();
        let bytes = [&up_to_a_handle()[..], &handle, &[0; 1 + 4 + 4]].concat();
        assert_eq!(read(&bytes).is_ok(), ends, "{depth}");
    }
}

#[test]
fn lists_that_say_more_than_there_is_are_refused() {
    // Each level claims all that is left, and is never filled.
    let wide = b"\x08\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\x10\0";
    refused(&[&up_to_a_handle()[..], &wide.repeat(400)].concat());
    // The shared files of an incremental handle whose other fields are 0.
    let handle = [&up_to_a_handle()[..], &[11], &[0; 8 + 2 + 8 + 8 + 1], &i32::MAX.to_be_bytes()].concat();
    assert!(matches!(read(&handle), Err(FlinkError::Limit { of: "files of a handle", .. })));
    let inline = b"\x03\0\0\0\0\0\0\0\0\x01\0\0\x7F\xFF\xFF\xFF";
    assert!(refused(&[&up_to_a_handle()[..], inline].concat()).contains("inline bytes"));
}

#[test]
fn other_files_and_other_versions_are_refused_by_name() {
    assert!(refused(b"PK\x03\x04 a zip").contains("504b0304"));
    assert!(refused(b"").contains("_metadata"));
    let with_version = |version: i32| [&b"\x49\x60\x67\x2D"[..], &version.to_be_bytes(), &[0; 64]].concat();
    for version in [1, 7, 8, i32::MAX] {
        let error = read(&with_version(version)).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains(&format!("version {version}, and 2 to 6 can be read")), "{error}");
    }
    for version in [0, -1, i32::MIN] {
        assert!(refused(&with_version(version)).contains(&format!("version is {version}")));
    }
}

#[test]
fn what_would_not_be_written_again_is_refused() {
    let handle = |text: &[u8]| [&up_to_a_handle()[..], &[5], &[0; 8], text].concat();
    // Half of a pair, and a letter in two bytes that needs one.
    for text in [&b"\0\x03\xED\xA0\xBD"[..], b"\0\x02\xC1\x81"] {
        assert!(refused(&handle(text)).contains("not Unicode"));
    }
    let mut flag = write(&every_kind(6)).unwrap();
    let at = flag.windows(8).position(|window| window == b"file:/s\x01").unwrap();
    flag[at + 7] = 2;
    assert!(refused(&flag).contains("empty is 2"));
}

#[test]
fn the_object_at_the_end_is_followed_no_further_than_it_is_known() {
    let body = |properties: &[u8]| {
        [&b"\x49\x60\x67\x2D\0\0\0\x04"[..], &[0; 8 + 4 + 4], b"\xAC\xED\0\x05", properties].concat()
    };
    // A class "A": its name, number, flags, fields, the end of its annotation, its parent.
    let class = |flags: u8, fields: &[u8], parent: &[u8]| {
        [&b"\x72\0\x01A\0\0\0\0\0\0\0\x01"[..], &[flags], fields, &[0x78], parent].concat()
    };
    let object = |class: &[u8], values: &[u8]| [&[0x73][..], class, values].concat();
    let number = b"\0\x01J\0\x01n";
    for whole in [
        vec![0x70],
        object(&class(2, number, &[0x70]), &[0; 8]),
        object(&class(3, number, &[0x70]), &[&[0; 8][..], b"\x77\x02ab\x74\0\x01x\x78"].concat()),
        object(&class(2, b"\0\x02L\0\x01s\x74\0\x01SB\0\x01b", &[0x70]), b"\x74\0\x02hi\x01"),
        object(&class(2, number, &class(2, number, &[0x70])), &[0; 16]),
    ] {
        assert!(read(&body(&whole)).is_ok(), "{whole:02x?}");
        assert!(read(&body(&[&whole[..], b"more"].concat())).is_ok());
        for end in 0..whole.len() {
            refused(&body(&whole[..end]));
        }
    }
    // A parent that is the class itself, an unknown kind, a reference to nothing, and objects without an end to their nesting.
    for unknown in [
        object(&class(2, number, b"\x71\0\x7E\0\0"), &[0; 8]),
        vec![0x7B, 1, 2],
        vec![0x71, 0xFF, 0xFF, 0xFF, 0xFF],
        [0x73, 0x72, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0].repeat(100_000),
        class(2, b"\0\0", &[]).repeat(100_000),
    ] {
        survives(&body(&unknown));
    }
    let mut foreign = body(&[0x70]);
    foreign[24] = 0;
    assert!(refused(&foreign).contains("properties"));
}

proptest! {
    #[test]
    fn random_changes_do_no_harm(
        version in 2u32..=6,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..8),
    ) {
        let mut bytes = write(&every_kind(version)).unwrap();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => drop(bytes.remove(at)),
            }
        }
        survives(&bytes);
    }

    #[test]
    fn random_bytes_do_no_harm(version in 2u8..=6, tail in prop::collection::vec(prop_oneof![Just(0u8), 0u8..20, any::<u8>()], 0..300)) {
        survives(&[b"\x49\x60\x67\x2D\0\0\0", &[version][..], &[0; 12], &tail].concat());
        survives(&[&up_to_a_handle()[..], &tail].concat());
    }
}
