//! The reduction: when one actor may be scheduled alone.

use std::rc::Rc;

use ckptfs::types::{KeyParts, Prefix};

use super::super::program::{Ask, Future, Keys};
use super::super::world::StoreId;
use super::{Alone, Reply, Search, Write};

impl Search {
    /// Whether nobody else can change what this actor's next step reads, or see what it writes.
    pub(super) fn alone(&mut self, state: &[u32], actor: usize) -> bool {
        let place = state[actor + 1];
        let Some(needs) = self.needs(place, state[0]) else { return false };
        let mut others: Vec<&Future> = Vec::new();
        for (i, other) in state[1..].iter().enumerate() {
            if i != actor {
                others.push(&self.place_future[*other as usize]);
            }
        }
        !others.iter().any(|o| {
            needs.creates.meets(&o.creates)
                || needs.deletes.meets(&o.deletes)
                || needs.reads.meets(&o.reads)
                || (needs.completes && o.completes)
        })
    }

    pub(super) fn needs(&mut self, place: u32, store: StoreId) -> Option<Rc<Alone>> {
        if let Some(known) = self.alone_known.get(&(place, store)) {
            return known.clone();
        }
        let needs = self.needed(place, store).map(Rc::new);
        self.alone_known.insert((place, store), needs.clone());
        needs
    }

    pub(super) fn needed(&self, place: u32, store: StoreId) -> Option<Alone> {
        let place = &self.places[place as usize];
        let waiting = &self.programs[place.program as usize];
        if waiting.asks.is_empty() {
            return None;
        }
        let mut needs =
            Alone { creates: Keys::default(), deletes: Keys::default(), reads: Keys::default(), completes: false };
        let mut unwritten = waiting.writes.iter().zip(&place.replies).filter(|(_, r)| **r == Reply::None).peekable();
        if unwritten.peek().is_some() {
            for ((_, write), _) in unwritten {
                let (Write::Create(obj) | Write::Upload(obj)) = *write else { return None };
                let key = self.world.key_of(obj);
                let keys = Keys::of(key);
                needs.creates = needs.creates.and(&keys);
                needs.deletes = needs.deletes.and(&keys);
                match key.parts() {
                    KeyParts::Blob(_) => needs.reads = needs.reads.and(&keys),
                    // Whoever completes an undecided number of another's says so; that nobody else reads its acks is checked.
                    KeyParts::Task(..) => needs.completes = true,
                    _ => return None,
                }
            }
        } else {
            let set = &self.world.sets[store as usize];
            for ask in &waiting.asks {
                match ask {
                    Ask::List(prefix) => {
                        let keys = Keys::under(prefix);
                        needs.creates = needs.creates.and(&keys);
                        needs.deletes = needs.deletes.and(&keys);
                    }
                    Ask::Blobs => {
                        let keys = Keys::under(&Prefix::blobs());
                        needs.creates = needs.creates.and(&keys);
                        needs.deletes = needs.deletes.and(&keys);
                    }
                    Ask::Get(key) | Ask::Head(key) => {
                        let there = self.world.known_key(key).is_some_and(|k| self.world.at(set, k).is_some());
                        let changes = if there { &mut needs.deletes } else { &mut needs.creates };
                        *changes = changes.and(&Keys::of(key));
                    }
                    _ => {}
                }
            }
        }
        // Its own late requests are others'.
        for write in &place.astray {
            let meets = match write {
                Write::Create(o) | Write::Upload(o) => Keys::of(self.world.key_of(*o)).meets(&needs.creates),
                Write::Delete(k) => Keys::of(&self.world.keys[*k as usize]).meets(&needs.deletes),
            };
            if meets {
                return None;
            }
        }
        Some(needs)
    }
}
