//! Records are signed on their way in and checked on their way out, where the store was opened with keys. Nothing above knows.

use bytes::Bytes;

use super::Store;
use super::error::{Result, StoreError};
use crate::format::records::StoreRecord;
use crate::format::{FormatError, decode_at, signature};
use crate::limits;
use crate::types::{Key, Uid};

impl Store {
    /// What is stored for a record: itself, or itself with a signature where there are keys. One that is signed already stays as it is.
    ///
    /// # Errors
    /// When the store's id, which is a part of every signature, cannot be had; when the bytes are no record.
    pub fn signed(&self, key: &Key, body: Bytes) -> Result<Bytes> {
        let Some(ring) = self.0.options.keys.as_ref().filter(|_| signature::is_signed(key)) else { return Ok(body) };
        let invalid = |e: FormatError| StoreError::Invalid { object: self.object(key.as_str()), why: e.to_string() };
        let id = if *key == Key::store() {
            decode_at::<StoreRecord>(key, &body).map_err(invalid)?.record.place.uid
        } else {
            self.id()?
        };
        signature::sign(&body, ring, id, key).map(Bytes::from).map_err(invalid)
    }

    /// The bytes of an object, if they may be believed.
    pub(super) fn believed(&self, key: &Key, bytes: Bytes) -> Result<Bytes> {
        let Some(ring) = self.0.options.keys.as_ref().filter(|_| signature::is_signed(key)) else { return Ok(bytes) };
        let untrusted = |why| StoreError::Untrusted { object: self.object(key.as_str()), why };
        let id = if *key == Key::store() {
            // A record that does not even say whose id it has is refused by whoever reads it, in better words.
            let Ok(record) = decode_at::<StoreRecord>(key, &bytes) else { return Ok(bytes) };
            record.record.place.uid
        } else {
            self.id()?
        };
        signature::verify(&bytes, ring, id, key).map_err(untrusted)?;
        if *key == Key::store() {
            // The first that was believed stands for this store's life: another one would be another store.
            let _ = self.0.id.set(id);
        }
        Ok(bytes)
    }

    /// The store's id, by its own record, which must be signed.
    fn id(&self) -> Result<Uid> {
        if let Some(id) = self.0.id.get() {
            return Ok(*id);
        }
        let key = Key::store();
        let not_ours = |why: String| StoreError::NotOurs { store: self.url().to_owned(), why };
        let bytes = self.get_at(key.as_str(), limits::METADATA_LEN)?;
        let bytes = bytes.ok_or_else(|| not_ours("there is no ckptfs.json".to_owned()))?;
        let bytes = self.believed(&key, bytes)?;
        let record = decode_at::<StoreRecord>(&key, &bytes).map_err(|e| not_ours(e.to_string()))?;
        Ok(*self.0.id.get_or_init(|| record.record.place.uid))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::records::ExpiredRecord;
    use crate::format::{Place, Role, encode};
    use crate::store::memory::Memory;
    use crate::store::{BlobSource, Created, StoreOptions};
    use crate::types::{BlobName, CheckpointNumber, Digest, KeyRing, Name};

    const ID: Uid = Uid::from_bytes([0xa0; 16]);

    fn ring(seeds: &[u8]) -> KeyRing {
        let text: String = seeds.iter().map(|s| Digest::of(&[*s]).to_hex() + "\n").collect();
        KeyRing::parse(text.as_bytes()).unwrap()
    }

    fn over(memory: &Arc<Memory>, seeds: &[u8]) -> Store {
        let keys = (!seeds.is_empty()).then(|| ring(seeds));
        Store::from_backend(memory.clone(), "memory://", StoreOptions { keys, ..StoreOptions::default() })
    }

    fn store_record(id: Uid) -> Bytes {
        let place =
            Place { role: Role::Store, job: None, number: 0, uid: id, subtask: None, holder: None, nonce: None };
        encode(&StoreRecord { place, created_by: "a test".to_owned() }).unwrap().into()
    }

    fn expired(job: &str, n: u8) -> (Key, Bytes) {
        let job = Name::encode(job);
        let place = Place::new(Role::Expired, &job, n.into(), Uid::from_bytes([n; 16]));
        let body = encode(&ExpiredRecord { place, reason: "a test".to_owned() }).unwrap();
        (Key::expired(&job, CheckpointNumber::new(n.into()).unwrap()), body.into())
    }

    /// A store whose record and one other are signed by key 1.
    fn signed() -> (Arc<Memory>, Key, Bytes) {
        let memory = Arc::new(Memory::new());
        let store = over(&memory, &[1]);
        store.create(&Key::store(), store_record(ID)).unwrap();
        let (key, body) = expired("app", 7);
        assert_eq!(store.create(&key, body.clone()).unwrap(), Created::New);
        assert_eq!(store.create(&key, body.clone()).unwrap(), Created::Ours);
        (memory, key, body)
    }

    fn raw(memory: &Arc<Memory>, key: &Key) -> Bytes {
        over(memory, &[]).get(key, 1 << 20).unwrap().unwrap()
    }

    fn refused(store: &Store, key: &Key) -> String {
        match store.get(key, 1 << 20) {
            Err(e @ StoreError::Untrusted { .. }) => e.to_string(),
            other => panic!("{key}: {other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_signed_and_read_with_and_without_the_key() {
        let (memory, key, body) = signed();
        let stored = raw(&memory, &key);
        assert!(stored != body && stored.len() == body.len() + 73, "{stored:?}");
        assert_eq!(over(&memory, &[1]).get(&key, 1 << 20).unwrap(), Some(stored.clone()));
        // A reader without a key, of any age, finds the same record.
        assert_eq!(
            decode_at::<ExpiredRecord>(&key, &stored).unwrap(),
            decode_at::<ExpiredRecord>(&key, &body).unwrap()
        );
        let store = over(&memory, &[1]);
        assert_eq!(store.signed(&key, body).unwrap(), stored);
        assert_eq!(store.signed(&key, stored.clone()).unwrap(), stored, "signing twice is signing once");
        let head = Key::head(&Name::encode("app"));
        store.put_hint(&head, expired("app", 1).1).unwrap();
        assert!(store.get(&head, 1 << 20).unwrap().is_some());
        // Blobs are what their names say.
        let name = BlobName { digest: Digest::of(b"x"), uid: ID };
        store.upload_blob(&name, BlobSource::Bytes(Bytes::from_static(b"x"))).unwrap();
        assert_eq!(store.get(&Key::blob(&name), 9).unwrap().unwrap(), "x");
    }

    #[test]
    fn unsigned_records_are_refused_and_also_when_they_won_a_race() {
        let (memory, _, _) = signed();
        let (key, body) = expired("app", 8);
        memory.plant(key.as_str(), body.clone());
        let store = over(&memory, &[1]);
        let why = refused(&store, &key);
        assert!(why.contains("not signed") && why.contains("Give every writer of this store the key file"), "{why}");
        assert!(matches!(store.create(&key, body), Err(StoreError::Untrusted { .. })));
        assert!(over(&memory, &[]).get(&key, 1 << 20).unwrap().is_some());
    }

    #[test]
    fn every_flipped_bit_is_refused() {
        let (memory, key, _) = signed();
        let stored = raw(&memory, &key);
        let store = over(&memory, &[1]);
        for bit in 0..stored.len() * 8 {
            let mut flipped = stored.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            memory.plant(key.as_str(), flipped);
            refused(&store, &key);
        }
        for length in 0..stored.len() {
            memory.plant(key.as_str(), stored.slice(..length));
            refused(&store, &key);
        }
        memory.plant(key.as_str(), stored);
        assert!(store.get(&key, 1 << 20).unwrap().is_some());
    }

    #[test]
    fn records_that_were_moved_are_refused() {
        let (memory, key, _) = signed();
        let stored = raw(&memory, &key);
        let store = over(&memory, &[1]);
        for (job, n) in [("app", 8), ("other", 7)] {
            let (elsewhere, _) = expired(job, n);
            memory.plant(elsewhere.as_str(), stored.clone());
            assert!(refused(&store, &elsewhere).contains("moved here from another place or store"));
        }
        // The same key of another store that the same key signs.
        let other = Arc::new(Memory::new());
        over(&other, &[1]).create(&Key::store(), store_record(Uid::from_bytes([0xb0; 16]))).unwrap();
        other.plant(key.as_str(), stored);
        refused(&over(&other, &[1]), &key);
    }

    #[test]
    fn another_key_is_refused_until_both_are_in_the_file() {
        let (memory, key, _) = signed();
        assert!(refused(&over(&memory, &[2]), &Key::store()).contains("not in the key file"));
        // The store's own record comes first, whatever is asked.
        assert!(matches!(over(&memory, &[2]).get(&key, 1 << 20), Err(StoreError::Untrusted { .. })));
        let both = over(&memory, &[2, 1]);
        assert!(both.get(&key, 1 << 20).unwrap().is_some());
        let (new, body) = expired("app", 9);
        both.create(&new, body).unwrap();
        assert!(over(&memory, &[1, 2]).get(&new, 1 << 20).unwrap().is_some());
        refused(&over(&memory, &[1]), &new);
    }

    #[test]
    fn a_store_that_is_not_signed_is_refused_as_a_whole() {
        let memory = Arc::new(Memory::new());
        let plain = over(&memory, &[]);
        plain.create(&Key::store(), store_record(ID)).unwrap();
        let (key, body) = expired("app", 7);
        plain.create(&key, body).unwrap();
        let store = over(&memory, &[1]);
        assert!(refused(&store, &Key::store()).contains("a new store with the key"));
        assert!(matches!(store.get(&key, 1 << 20), Err(StoreError::Untrusted { .. })));
        let (new, body) = expired("app", 8);
        assert!(matches!(store.create(&new, body), Err(StoreError::Untrusted { .. })));
        assert_eq!(over(&memory, &[]).get(&new, 1 << 20).unwrap(), None, "nothing was written");
        // Without its own record nobody can say which store it is.
        let empty = over(&Arc::new(Memory::new()), &[1]);
        assert!(matches!(empty.create(&key, store_record(ID)), Err(StoreError::NotOurs { .. })));
    }

    #[test]
    fn only_records_are_signed() {
        let (memory, key, _) = signed();
        let store = over(&memory, &[1]);
        for bad in [&b""[..], b"{}", b"x\ny\n", &[b'{'; 5000]] {
            assert!(
                matches!(store.signed(&key, Bytes::copy_from_slice(bad)), Err(StoreError::Invalid { .. })),
                "{bad:?}"
            );
        }
        // What another key signed is not signed over.
        let (_, body) = expired("app", 7);
        let other = over(&memory, &[2, 1]).signed(&key, body).unwrap();
        assert!(matches!(store.signed(&key, other), Err(StoreError::Invalid { .. })));
    }
}
