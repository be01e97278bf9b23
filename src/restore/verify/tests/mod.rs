//! Every kind of finding, told exactly: what is wrong with which object, and whom it hurts.

mod blobs;
mod lies;
mod mends;
mod reads;
mod records;
mod resumed;
mod strays;

use super::*;
use crate::restore::tests::World;
use crate::types::Silent;

/// A finding without what only the machine knows: its object, whom it hurts with which files, and its words.
pub(super) type Told = (FindingKind, String, Vec<(String, Vec<String>)>, String);

/// All of it, and nothing read.
pub(super) fn look(world: &World) -> Report {
    verify(&world.session, &Scope::default(), &Options::default(), &Silent).unwrap()
}

/// All of it, every byte.
pub(super) fn read(world: &World) -> Report {
    let options = Options { read: Some(Read::default()), repair: false };
    verify(&world.session, &Scope::default(), &options, &Silent).unwrap()
}

/// Without reading, or with it, and mended.
pub(super) fn mend(world: &World, read: bool) -> Result<Report> {
    let options = Options { read: read.then(Read::default), repair: true };
    verify(&world.session, &Scope::default(), &options, &Silent)
}

pub(super) fn hurts(of: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    of.iter().map(|(hurt, files)| ((*hurt).to_owned(), files.iter().map(|f| (*f).to_owned()).collect())).collect()
}

pub(super) fn told(finding: &Finding) -> Told {
    let hurts = finding.hurts.iter().map(|hurt| (hurt.to_string(), hurt.files.clone())).collect();
    (finding.kind, finding.object.clone(), hurts, finding.detail.clone())
}

/// Compares the findings, in their order.
#[track_caller]
pub(super) fn finds(report: &Report, expected: &[Told]) {
    let found: Vec<Told> = report.findings.iter().map(told).collect();
    assert_eq!(found, expected);
}

#[track_caller]
pub(super) fn finds_one(report: &Report, kind: FindingKind, key: &Key, hurt: &[(&str, &[&str])], detail: &str) {
    finds(report, &[(kind, key.to_string(), hurts(hurt), detail.to_owned())]);
}

#[test]
fn a_sample_is_a_share_that_seed_and_digest_decide() {
    let digests: Vec<Digest> = (0..2000_u32).map(|i| Digest::of(&i.to_le_bytes())).collect();
    let picked = |percent: f64, seed| {
        let read = Read { percent, seed, resume: None };
        digests.iter().filter(|d| read.picks(d)).copied().collect::<Vec<_>>()
    };
    assert_eq!(picked(100.0, 1).len(), 2000);
    let (ten, again, other) = (picked(10.0, 1), picked(10.0, 1), picked(10.0, 2));
    assert!(ten == again && ten != other);
    assert!((120..280).contains(&ten.len()) && (120..280).contains(&other.len()), "{}", ten.len());
    let more = picked(30.0, 1);
    assert!(ten.iter().all(|d| more.contains(d)), "a larger sample has the smaller one");
    assert!(picked(0.001, 1).len() < 5);
}

#[test]
fn kinds_have_words_and_two_are_no_damage() {
    use FindingKind::{Damaged, DanglingPin, Foreign, Missing, Short, Unreadable, Unreferenced};
    for (kind, word, damage) in [
        (Missing, "missing", true),
        (Short, "short", true),
        (Damaged, "damaged", true),
        (Unreadable, "unreadable", true),
        (DanglingPin, "dangling pin", true),
        (Unreferenced, "unreferenced", false),
        (Foreign, "foreign", false),
    ] {
        assert_eq!((kind.as_str(), kind.is_damage()), (word, damage));
        let mut finding = Finding::stored(kind, &Key::store(), Vec::new(), "d");
        assert_eq!((finding.is_open(), finding.in_cache(), finding.files()), (damage, false, Vec::new()));
        finding.mended = Some("so".to_owned());
        assert!(!finding.is_open());
        finding.at = finding::Object::Cached(Digest::of(b""));
        assert!(finding.in_cache());
    }
}

#[test]
fn a_hurt_is_told_by_its_path_on_the_mount() {
    let (job, n) = (Name::encode("app"), CheckpointNumber::new(7).unwrap());
    let (whole, part) = (Hurt::checkpoint(&job, n), Hurt::manifest(&job, n, &Name::encode("db"), 3));
    assert_eq!((whole.to_string().as_str(), whole.files.len(), whole.more), ("app/chk-7", 0, 0));
    assert_eq!(part.to_string(), "app/chk-7/db/3");
    let finding = Finding::stored(FindingKind::Missing, &Key::store(), vec![whole, part], "");
    assert_eq!(finding.files(), ["app/chk-7/db/3/manifest.json"]);
}

#[test]
fn a_scope_is_everything_a_job_or_a_checkpoint() {
    let parse = |text| Scope::parse(Some(text));
    let shown = |scope: Scope| (scope.job.map(|j| j.to_string()), scope.number.map(CheckpointNumber::get));
    assert_eq!(shown(Scope::parse(None).unwrap()), (None, None));
    assert_eq!(shown(parse("app").unwrap()), (Some("app".to_owned()), None));
    assert_eq!(shown(parse("app/").unwrap()), (Some("app".to_owned()), None));
    assert_eq!(shown(parse("app/chk-3").unwrap()), (Some("app".to_owned()), Some(3)));
    assert_eq!(shown(parse("app/chk-3/").unwrap()), (Some("app".to_owned()), Some(3)));
    for bad in ["app/latest", "app/chk-3/db/0", "app/chk-3/db/0/db/CURRENT", "", "app/3"] {
        assert_eq!(parse(bad).unwrap_err().kind(), Kind::Invalid, "{bad}");
    }
    let (job, other) = (Name::encode("app"), Name::encode("other"));
    let n = |n| CheckpointNumber::new(n).unwrap();
    let covers = |text, job, number| Scope::parse(text).unwrap().covers(job, n(number));
    assert!(covers(None, &job, 1) && covers(Some("app"), &job, 9) && covers(Some("app/chk-3"), &job, 3));
    assert!(!covers(Some("app"), &other, 9) && !covers(Some("app/chk-3"), &job, 4));
    assert!(!covers(Some("app/chk-3"), &other, 3));
}
