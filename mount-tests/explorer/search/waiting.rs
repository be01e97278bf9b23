//! What is met is kept once and known by a number: programs as they wait, what their reads cover, what they see, and places.

use std::rc::Rc;

use bytes::Bytes;
use ckptfs::types::{Digest, Key, KeyParts, Prefix};

use super::super::program::{Ask, Future, Keys, Program};
use super::super::world::{KeyId, Obj, StoreId};
use super::{Footprint, Luck, Place, Reply, Search, Waiting, Write};

impl Search {
    pub(super) fn program(&mut self, program: Box<dyn Program>, asks: Vec<Ask>) -> u32 {
        let print = Digest::of(format!("{program:?}\n{asks:?}").as_bytes());
        if let Some(id) = self.program_ids.get(&print) {
            return *id;
        }
        let mut footprint = Footprint::default();
        let mut writes = Vec::new();
        let loose = self.loose;
        let (future, always) = (program.future(), program.restarted().future());
        for (i, ask) in asks.iter().enumerate() {
            match ask {
                Ask::List(prefix) => {
                    let keys = Keys::under(prefix);
                    assert!(
                        loose || keys.within(&future.reads),
                        "{program:?} lists {prefix}, which it did not declare"
                    );
                    footprint.prefixes.push(prefix.clone());
                }
                Ask::Blobs => {
                    let keys = Keys::under(&Prefix::blobs());
                    assert!(loose || keys.within(&future.reads), "{program:?} lists blobs, which it did not declare");
                    footprint.prefixes.push(Prefix::blobs());
                }
                Ask::Get(key) | Ask::Head(key) => {
                    assert!(
                        loose || Keys::of(key).within(&future.reads),
                        "{program:?} reads {key}, which it did not declare"
                    );
                    self.world.key(key);
                    footprint.keys.push(key.clone());
                }
                Ask::Create(key, bytes) => {
                    assert!(
                        loose || Keys::of(key).within(&future.creates),
                        "{program:?} creates {key}, which it did not declare"
                    );
                    writes.push((i, Write::Create(self.world.object(key, bytes))));
                }
                Ask::Upload(blob, length) => {
                    let key = Key::blob(blob);
                    assert!(
                        loose || Keys::of(&key).within(&future.creates),
                        "{program:?} uploads {key}, which it did not declare"
                    );
                    let bytes = Bytes::copy_from_slice(&length.to_le_bytes());
                    writes.push((i, Write::Upload(self.world.object(&key, &bytes))));
                }
                Ask::Delete(key) => {
                    assert!(
                        loose || Keys::of(key).within(&future.deletes),
                        "{program:?} deletes {key}, which it did not declare"
                    );
                    writes.push((i, Write::Delete(self.world.key(key))));
                }
            }
        }
        let id = u32::try_from(self.programs.len()).expect("fewer programs");
        let reads = writes.len() < asks.len();
        let claims = Rc::new(program.claims());
        let footprint = self.footprint(footprint);
        self.programs.push(Waiting { program, asks, writes, footprint, reads, claims, future, always });
        self.program_ids.insert(print, id);
        id
    }

    pub(super) fn footprint(&mut self, footprint: Footprint) -> u32 {
        if let Some(id) = self.footprint_ids.get(&footprint) {
            return *id;
        }
        let id = u32::try_from(self.footprints.len()).expect("fewer footprints");
        self.footprints.push(footprint.clone());
        self.covered.push(Vec::new());
        self.footprint_ids.insert(footprint, id);
        id
    }

    pub(super) fn covers(&mut self, footprint: u32, key: KeyId) -> bool {
        let known = &mut self.covered[footprint as usize];
        let key = key as usize;
        if known.len() <= key {
            known.resize(key + 1, None);
        }
        let (footprints, world) = (&self.footprints, &self.world);
        *known[key].get_or_insert_with(|| footprints[footprint as usize].covers(&world.keys[key]))
    }

    pub(super) fn view(&mut self, store: StoreId, footprint: u32) -> u32 {
        if let Some(id) = self.view_of.get(&(store, footprint)) {
            return *id;
        }
        let set = self.world.get(store);
        let mut view = Vec::new();
        for obj in &set.present {
            let key = self.world.objects[*obj as usize].key;
            if self.covers(footprint, key) {
                view.push(*obj);
            }
        }
        let id = match self.view_ids.get(&view) {
            Some(id) => *id,
            None => {
                let view = Rc::new(view);
                let id = u32::try_from(self.views.len()).expect("fewer views");
                self.views.push(view.clone());
                self.view_ids.insert(view, id);
                id
            }
        };
        self.view_of.insert((store, footprint), id);
        id
    }

    /// Where an actor is that has just asked.
    pub(super) fn placed(&mut self, program: u32, store: StoreId, luck: Luck, astray: Vec<Write>) -> u32 {
        let waiting = &self.programs[program as usize];
        let replies = vec![Reply::None; waiting.writes.len()];
        let (reads, footprint) = (waiting.reads, waiting.footprint);
        let luck = if waiting.asks.is_empty() { Luck::default() } else { luck };
        let seen = if reads { self.view(store, footprint) } else { u32::MAX };
        self.no_peeping(program, store);
        self.place(Place { program, replies, seen, flux: Vec::new(), luck, astray })
    }

    /// Acks of undecided numbers are read by those who complete them, and by nobody else: the reduction relies on it.
    pub(super) fn no_peeping(&self, program: u32, store: StoreId) {
        let waiting = &self.programs[program as usize];
        for ask in &waiting.asks {
            if let Ask::Get(key) = ask
                && let KeyParts::Task(job, n, ..) = key.parts()
            {
                let set = &self.world.sets[store as usize];
                let decided =
                    |o: &Obj| matches!(self.world.key_of(*o).parts(), KeyParts::Outcome(j, m) if j == job && m == n);
                let may = waiting.future.completes || waiting.program.owns(key);
                assert!(
                    may || set.present.iter().chain(&set.departed).any(decided),
                    "{:?} peeps at {key}",
                    waiting.program
                );
            }
        }
    }

    pub(super) fn place(&mut self, place: Place) -> u32 {
        if let Some(id) = self.place_ids.get(&place) {
            return *id;
        }
        let waiting = &self.programs[place.program as usize];
        let mut future = if place.luck.kills > 0 { waiting.future.and(&waiting.always) } else { waiting.future };
        if waiting.asks.is_empty() {
            future = Future::default();
        }
        for write in &place.astray {
            match write {
                Write::Create(o) | Write::Upload(o) => {
                    future.creates = future.creates.and(&Keys::of(self.world.key_of(*o)));
                }
                Write::Delete(k) => future.deletes = future.deletes.and(&Keys::of(&self.world.keys[*k as usize])),
            }
        }
        let id = u32::try_from(self.places.len()).expect("fewer places");
        let place = Rc::new(place);
        self.places.push(place.clone());
        self.place_future.push(future);
        self.place_ids.insert(place, id);
        id
    }
}
