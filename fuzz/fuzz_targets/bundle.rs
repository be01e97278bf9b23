//! Bundles: hostile extents find nothing outside of one, and sections that are packed come back.
#![no_main]

use ckptfs::format::bundle::{BundleBuilder, MAGIC, section};
use libfuzzer_sys::fuzz_target;

/// A section of one byte takes two of the input, and eight in the bundle, whose buffer may have twice the room.
const TIMES: usize = 8;

fuzz_target!(|data: &[u8]| {
    let Some((numbers, bundle)) = data.split_first_chunk::<16>() else { return };
    let [offset, length] = [&numbers[..8], &numbers[8..]].map(|n| u64::from_be_bytes(n.try_into().unwrap()));
    ckptfs_fuzz::within(0, 0, || {
        if let Some(found) = section(bundle, offset, length) {
            assert!(bundle.starts_with(MAGIC) && found.len() as u64 == length);
            assert!(offset >= MAGIC.len() as u64 && found == &bundle[offset as usize..][..found.len()]);
        }
    });
    let mut added = Vec::with_capacity(bundle.len());
    ckptfs_fuzz::within(TIMES, bundle.len(), || {
        let (mut rest, mut builder) = (bundle, BundleBuilder::default());
        assert!(builder.is_empty());
        while let Some((length, more)) = rest.split_first() {
            let (bytes, more) = more.split_at(usize::from(*length).min(more.len()));
            added.push((builder.add(bytes), bytes));
            rest = more;
        }
        let built = builder.finish();
        for ((offset, length), bytes) in added.drain(..) {
            assert!(offset % 8 == 0 && section(&built, offset, length) == Some(bytes));
        }
    });
});
