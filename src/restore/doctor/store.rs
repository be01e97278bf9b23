//! The store: is it there, may it be written, does it decide races, what does its bucket do by itself.

use super::{Finding, Severity, bucket, place};
use crate::cache::SessionOptions;
use crate::cache::session::unidentified_store;
use crate::error::{Error, Kind};
use crate::lifecycle::{self, LifecycleError};
use crate::store::Store;

pub(super) fn examine(options: &SessionOptions) -> Vec<Finding> {
    let store = match unidentified_store(options) {
        Ok(store) => store,
        Err(e) => return vec![Finding::fails("store", &e)],
    };
    let (finding, reached, ours) = identity(&store);
    let mut findings = vec![finding];
    if !reached {
        return findings;
    }
    match store.disk() {
        Ok(Some((path, room))) => findings.push(place::space(place::STORE_SPACE, &path, room)),
        Ok(None) => {}
        Err(e) => findings.push(Finding::fails(place::STORE_SPACE, &e.into())),
    }
    if ours {
        findings.push(races(&store));
    }
    match store.bucket_rules() {
        Ok(Some(rules)) => findings.extend(bucket::judge(&rules)),
        Ok(None) => {}
        Err(e) => findings.push(Finding::fails("bucket", &e.into())),
    }
    findings
}

/// What lies there, whether it was reached, and whether a probe may be made in it.
fn identity(store: &Store) -> (Finding, bool, bool) {
    const CHECK: &str = "store";
    let url = store.url();
    let note = |says: String, remedy: &str| Finding::new(CHECK, Severity::Note, says, remedy);
    match lifecycle::identify(store) {
        Ok(identity) => {
            let finding = match identity.writable() {
                Ok(()) => Finding::fine(CHECK, format!("{url} has the id {}", identity.id)),
                Err(e) => Finding::new(CHECK, Severity::Warning, format!("{url} can only be read: {e}"), ""),
            };
            (finding, true, true)
        }
        Err(LifecycleError::NotAStore { .. }) => {
            let created = "`ckptfs snapshot` and `ckptfs open` create it";
            match store.exists_root().and_then(|there| Ok(there && store.looks_foreign()?)) {
                Ok(true) => {
                    let says = format!("{url} holds other objects and no store");
                    (Finding::new(CHECK, Severity::Fails, says, "name an empty place for a new store"), true, false)
                }
                // Where nothing is, nothing is made to look at it.
                Ok(false) => {
                    let there = store.exists_root().unwrap_or(false);
                    (note(format!("{url} is no store yet"), created), there, there)
                }
                Err(e) => (Finding::fails(CHECK, &e.into()), false, false),
            }
        }
        Err(e) => {
            let reached = e.kind() != Kind::Unavailable;
            (Finding::fails(CHECK, &e.into()), reached, false)
        }
    }
}

fn races(store: &Store) -> Finding {
    const CHECK: &str = "create-if-absent";
    match store.probe() {
        Ok(()) => Finding::fine(CHECK, "20 races of 8 creators had one winner each, and lists agree"),
        Err(e) if e.kind() == Kind::Permission => {
            let says = format!("not tried, since we may not write there: a mount works, a snapshot does not ({e})");
            Finding::new(CHECK, Severity::Note, says, "to take checkpoints, use credentials that may write")
        }
        Err(e) => Finding::fails(CHECK, &Error::from(e)),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::metrics::Counter;
    use crate::store::memory::Memory;
    use crate::store::{Backend, BlobSource, Put, RawListed, Result, Sink, StoreError, StoreOptions};
    use crate::types::{Digest, Uid};

    #[test]
    fn stores_are_told_from_empty_and_foreign_places() {
        let store = Memory::store();
        let (finding, reached, ours) = identity(&store);
        assert_eq!((finding.severity, reached, ours), (Severity::Note, true, true), "{finding:?}");
        lifecycle::identity::create(&store, Uid::from_bytes([1; 16])).unwrap();
        assert_eq!(identity(&store).0.severity, Severity::Fine);
        assert_eq!(races(&store).severity, Severity::Fine);
        let memory = Arc::new(Memory::new());
        memory.plant("photos/cat", "meow");
        let foreign = Store::from_backend(memory, "memory://", StoreOptions::default());
        let (finding, _, ours) = identity(&foreign);
        assert_eq!((finding.severity, ours), (Severity::Fails, false), "{finding:?}");
    }

    #[test]
    fn what_cannot_be_reached_or_read_fails() {
        let memory = Arc::new(Memory::new());
        let options = StoreOptions { attempts: 1, ..StoreOptions::default() };
        let store = Store::from_backend(Arc::clone(&memory) as _, "memory://", options);
        memory.plant("ckptfs.json", "{}");
        let (finding, reached, ours) = identity(&store);
        assert_eq!((finding.severity, reached, ours), (Severity::Fails, true, false), "{finding:?}");
        memory.fail_when(|what, _| what == "get");
        let (finding, reached, ours) = identity(&store);
        assert_eq!((finding.severity, reached, ours), (Severity::Fails, false, false), "{finding:?}");
        memory.remove("ckptfs.json");
        memory.fail_when(|what, _| what == "list");
        let (finding, reached, ours) = identity(&store);
        assert_eq!((finding.severity, reached, ours), (Severity::Fails, false, false), "{finding:?}");
    }

    /// A store in memory that nobody may write to.
    #[derive(Debug, Default)]
    struct Closed(Memory);

    impl Backend for Closed {
        fn get(&self, key: &str, max_len: u64) -> Result<Option<Bytes>> {
            self.0.get(key, max_len)
        }

        fn read(&self, key: &str, range: Range<u64>, size: Option<u64>, sink: Sink<'_>) -> Result<()> {
            self.0.read(key, range, size, sink)
        }

        fn head(&self, key: &str) -> Result<Option<u64>> {
            self.0.head(key)
        }

        fn list(&self, directory: &str, after: Option<&str>, limit: usize) -> Result<Vec<RawListed>> {
            self.0.list(directory, after, limit)
        }

        fn create(&self, key: &str, _: Bytes, _: bool) -> Result<Put> {
            Err(StoreError::ReadOnly { what: "write", object: key.to_owned() })
        }

        fn replace(&self, key: &str, _: Bytes) -> Result<()> {
            Err(StoreError::ReadOnly { what: "write", object: key.to_owned() })
        }

        fn upload(&self, key: &str, _: &Digest, _: &BlobSource<'_>, _: &Counter) -> Result<()> {
            Err(StoreError::ReadOnly { what: "write", object: key.to_owned() })
        }

        fn delete(&self, _: &[&str]) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_may_not_write_is_told_what_works_all_the_same() {
        let store = Store::from_backend(Arc::new(Closed::default()), "memory://", StoreOptions::default());
        let finding = races(&store);
        assert!(finding.severity == Severity::Note && finding.says.contains("a mount works"), "{finding:?}");
    }

    #[test]
    fn a_server_that_lets_all_win_is_found() {
        let store = Store::from_backend(Arc::new(Memory::ignoring_condition()), "memory://", StoreOptions::default());
        let finding = races(&store);
        assert!(finding.severity == Severity::Fails && finding.says.contains("create-if-absent"), "{finding:?}");
    }
}
