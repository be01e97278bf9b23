//! Which bytes are read: samples, and what the cache keeps.

use super::*;
use crate::format::BlobEntry;
use crate::restore::tests::{LARGE, World, names};
use crate::restore::warm;

#[test]
fn a_sample_reads_what_it_picks() {
    let world = World::new();
    let checkpoint = world.checkpoint("app", |part| {
        for i in 0..50_u32 {
            part.whole(&format!("db/{i:06}.sst"), &i.to_le_bytes());
        }
    });
    let sample = Read { percent: 40.0, seed: 3, resume: None };
    let blobs = world.manifest(&checkpoint).blobs.clone();
    let (picked, left): (Vec<&BlobEntry>, Vec<&BlobEntry>) = blobs.iter().partition(|b| sample.picks(&b.name.digest));
    assert!(!picked.is_empty() && !left.is_empty());
    for blob in [picked[0], left[0]] {
        world.flip(&Key::blob(&blob.name));
    }
    let options = Options { read: Some(sample), repair: false };
    let report = verify(&world.session, &Scope::default(), &options, &Silent).unwrap();
    let objects: Vec<&str> = report.findings.iter().map(|f| f.object.as_str()).collect();
    assert_eq!(objects, [Key::blob(&picked[0].name).as_str()]);
    let count = picked.len() as u64;
    assert_eq!(report.reading, Reading { blobs: count, bytes: 4 * count, resumed_bytes: 0, total_bytes: 200 });
}

#[test]
fn entries_of_the_cache_are_hashed_again() {
    let world = World::new();
    let checkpoint = world.database("app");
    let all: Vec<_> = checkpoint.manifest.subtasks.iter().collect();
    warm(&world.session, &checkpoint, &all, &Silent).unwrap();
    let manifest = world.manifest(&checkpoint);
    // Five files and their bundle.
    let report = read(&world);
    finds(&report, &[]);
    assert_eq!(report.cache_files, 6);
    assert_eq!(look(&world).cache_files, 0);
    let large = manifest.file("db/000007.sst").unwrap();
    let entry = World::entry(&world.session, &large.digest);
    let mut bytes = std::fs::read(&entry).unwrap();
    bytes[LARGE - 1] ^= 1;
    std::fs::write(&entry, &bytes).unwrap();
    let bundle = World::entry(&world.session, &manifest.blobs[0].name.digest);
    std::fs::remove_file(&bundle).unwrap();
    let report = read(&world);
    assert_eq!(report.cache_files, 5);
    let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
    let detail = format!("its {LARGE} bytes have the digest {}", Digest::of(&bytes));
    let hurt: &[(&str, &[&str])] = &[("app/chk-1/db/0", &["db/000007.sst"])];
    assert_eq!(told(finding), (FindingKind::Damaged, entry.display().to_string(), hurts(hurt), detail));
    assert!(finding.in_cache() && finding.is_open() && report.damaged());
    // Something that is no file has its name.
    std::fs::remove_file(&entry).unwrap();
    std::fs::create_dir(&entry).unwrap();
    let report = read(&world);
    let [finding] = report.findings.as_slice() else { panic!("{report:?}") };
    assert_eq!((finding.kind, report.cache_files), (FindingKind::Unreadable, 5));
    assert!(names(entry.parent().unwrap()).contains(&large.digest.to_hex()), "nothing was changed");
}
