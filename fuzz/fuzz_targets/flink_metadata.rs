//! `_metadata` of Flink: what is read is written again byte for byte, and every stream in it is shown.
#![no_main]

use std::convert::Infallible;

use ckptfs::flink::metadata::{Place, StreamHandle, read, streams, write};
use libfuzzer_sys::fuzz_target;

/// A local file without name and bytes takes 96 bytes for its 3, in a list with room for a quarter more: 40. Writing it again takes the
/// bytes themselves, in a buffer that grows: 2.
const TIMES: usize = 42;

fuzz_target!(|data: &[u8]| {
    ckptfs_fuzz::within(TIMES, data.len(), || match read(data) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(metadata) => {
            let mut shown = 0;
            let count = |_: &Place<'_>, handle: &StreamHandle| {
                assert!(!matches!(handle, StreamHandle::Null | StreamHandle::KeyGroups(_)));
                shown += 1;
                Ok::<(), Infallible>(())
            };
            let Ok(()) = streams(&metadata, count);
            assert!(shown <= data.len());
            assert!(write(&metadata).unwrap() == data, "it is not written as it was read");
        }
    });
});
