//! The model store: sets of objects, each set known by a number. An object is a key with its bytes, known by a number too.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use ckptfs::types::{Key, KeyParts};

pub type Obj = u16;
pub type KeyId = u16;
pub type StoreId = u32;

/// A key with its bytes.
#[derive(Debug, Clone)]
pub struct Object {
    pub key: KeyId,
    pub bytes: Bytes,
}

/// What is in the store, and which outcomes and tombstones have been in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Set {
    pub present: Vec<Obj>,
    pub departed: Vec<Obj>,
}

impl Set {
    pub fn has(&self, obj: Obj) -> bool {
        self.present.binary_search(&obj).is_ok()
    }
}

/// The objects and sets that a search has met.
#[derive(Default)]
pub struct World {
    pub keys: Vec<Key>,
    key_ids: HashMap<Key, KeyId>,
    pub objects: Vec<Object>,
    object_ids: HashMap<(KeyId, Bytes), Obj>,
    pub sets: Vec<Rc<Set>>,
    set_ids: HashMap<Rc<Set>, StoreId>,
}

/// What a create met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Met {
    Nothing,
    Itself,
    Other(Obj),
}

impl World {
    pub fn key(&mut self, key: &Key) -> KeyId {
        if let Some(id) = self.key_ids.get(key) {
            return *id;
        }
        let id = KeyId::try_from(self.keys.len()).expect("fewer keys");
        self.keys.push(key.clone());
        self.key_ids.insert(key.clone(), id);
        id
    }

    pub fn known_key(&self, key: &Key) -> Option<KeyId> {
        self.key_ids.get(key).copied()
    }

    pub fn object(&mut self, key: &Key, bytes: &Bytes) -> Obj {
        let key = self.key(key);
        if let Some(id) = self.object_ids.get(&(key, bytes.clone())) {
            return *id;
        }
        let id = Obj::try_from(self.objects.len()).expect("fewer objects");
        self.objects.push(Object { key, bytes: bytes.clone() });
        self.object_ids.insert((key, bytes.clone()), id);
        id
    }

    pub fn key_of(&self, obj: Obj) -> &Key {
        &self.keys[self.objects[obj as usize].key as usize]
    }

    pub fn bytes_of(&self, obj: Obj) -> &Bytes {
        &self.objects[obj as usize].bytes
    }

    pub fn set(&mut self, set: Set) -> StoreId {
        if let Some(id) = self.set_ids.get(&set) {
            return *id;
        }
        let id = StoreId::try_from(self.sets.len()).expect("fewer sets");
        let set = Rc::new(set);
        self.sets.push(set.clone());
        self.set_ids.insert(set, id);
        id
    }

    pub fn get(&self, store: StoreId) -> Rc<Set> {
        self.sets[store as usize].clone()
    }

    /// The object under a key.
    pub fn at(&self, set: &Set, key: KeyId) -> Option<Obj> {
        set.present.iter().copied().find(|o| self.objects[*o as usize].key == key)
    }

    /// Creates an object if its key is absent.
    pub fn create(&mut self, store: StoreId, obj: Obj) -> (Met, StoreId) {
        let set = self.get(store);
        match self.at(&set, self.objects[obj as usize].key) {
            Some(there) if there == obj => (Met::Itself, store),
            Some(there) => (Met::Other(there), store),
            None => {
                let mut next = (*set).clone();
                let at = next.present.partition_point(|o| *o < obj);
                next.present.insert(at, obj);
                (Met::Nothing, self.set(next))
            }
        }
    }

    /// Removes what is under a key; says what it was.
    pub fn delete(&mut self, store: StoreId, key: KeyId) -> (Option<Obj>, StoreId) {
        let set = self.get(store);
        let Some(obj) = self.at(&set, key) else { return (None, store) };
        let mut next = (*set).clone();
        next.present.retain(|o| *o != obj);
        if matches!(self.key_of(obj).parts(), KeyParts::Outcome(..) | KeyParts::Expired(..))
            && let Err(at) = next.departed.binary_search(&obj)
        {
            next.departed.insert(at, obj);
        }
        (Some(obj), self.set(next))
    }
}
