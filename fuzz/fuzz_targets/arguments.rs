//! What people type: a whole command line, one argument a line, behind a first byte; by that byte also names, places and URLs alone. A
//! command line parses or its error says why, and what was read is spelled back to the same.
#![no_main]

use ckptfs::flink::place::Rewrite;
use ckptfs::restore::Selection;
use ckptfs::restore::select::job_name;
use ckptfs::store::{SourceUrl, Store};
use ckptfs::types::{CheckpointNumber, KeyRing, Name};
use libfuzzer_sys::fuzz_target;

/// The program's own command line: of a program, not of the library.
#[path = "../../src/cli/mod.rs"]
#[allow(dead_code, unused_imports, unexpected_cfgs)]
mod cli;

/// Every verb with all its options is described before the first word is read: so many bytes' worth of it.
const DESCRIBED: usize = 256 << 10;

fn line(text: &str) {
    let words = std::iter::once("ckptfs").chain(text.split('\n'));
    if let Err(e) = ckptfs_fuzz::bounded(DESCRIBED + text.len(), || cli::parse(words)) {
        assert!(!e.to_string().is_empty());
    }
}

fn names(text: &str) {
    ckptfs_fuzz::bounded(text.len(), || {
        let name = Name::encode(text);
        assert_eq!(Name::parse(name.as_str()), Ok(name.clone()));
        assert_eq!(name.as_str().parse::<Name>(), Ok(name));
        if let Ok(name) = Name::parse(text) {
            assert_eq!(name.as_str(), text);
        }
        if let Ok(job) = job_name(text) {
            assert_eq!(job_name(job.as_str()).unwrap(), job);
        }
        if let Ok(number) = text.parse::<CheckpointNumber>() {
            assert_eq!(number.to_string().parse(), Ok(number));
            assert_eq!(CheckpointNumber::from_key(&number.key()), Some(number));
        }
    });
}

fn selection(text: &str) {
    ckptfs_fuzz::bounded(text.len(), || {
        let Ok(found) = Selection::parse(text) else { return };
        let number = found.number.map_or("latest".to_owned(), |n| n.to_string());
        let mut again = format!("{}/{number}", found.job);
        if let Some((operator, subtask)) = &found.subtask {
            again.push_str(&format!("/{operator}/{subtask}"));
        }
        for part in &found.rest {
            again.push_str(&format!("/{part}"));
        }
        assert_eq!(Selection::parse(&again).unwrap(), found, "{text:?} {again:?}");
    });
}

fn urls(text: &str) {
    ckptfs_fuzz::bounded(text.len(), || {
        let _ = Rewrite::parse(text);
        let _ = KeyRing::parse(text.as_bytes()).map(|ring| ring.count());
        if let Ok(shown) = Store::spelled(text) {
            // Who would sign in, and by what, stands before the host.
            let host = shown.split_once("://").and_then(|(_, rest)| rest.split('/').next());
            assert!(!host.is_some_and(|host| host.contains('@')), "{shown}");
            assert_eq!(Store::spelled(&shown).ok(), Some(shown));
        }
        let Ok(url) = SourceUrl::parse(text) else { return };
        let again = SourceUrl::parse(&url.spelled()).unwrap();
        assert_eq!(again, url);
        assert!(url.components().all(|c| !matches!(c, "" | "." | "..")));
        if let Some(parent) = url.parent() {
            assert_eq!(parent.join(url.name()), url);
            assert_eq!(url.below(&parent), Some(url.name()));
        }
        assert_eq!(url.below(&url), Some(""));
        // Nothing leads above the root.
        let up = url.join("../".repeat(url.components().count() + 2).as_str());
        assert_eq!(up.components().count(), 0);
    });
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, text)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match kind % 4 {
        0 => line(text),
        1 => names(text),
        2 => selection(text),
        _ => urls(text),
    }
});
