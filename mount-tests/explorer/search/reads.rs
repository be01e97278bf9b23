//! What reads can see that end now: each key at a moment of its own.

use std::rc::Rc;

use ckptfs::store::Created;
use ckptfs::types::{Key, KeyParts};

use super::super::judge::length_of;
use super::super::program::{Answer, Ask};
use super::super::world::{KeyId, Met, Obj, StoreId};
use super::words::short;
use super::{Place, Reply, Search, Waiting};

/// The most combinations of changed keys that one batch of reads may see.
const COMBINATIONS: usize = 1 << 14;

impl Search {
    /// The programs that an actor may be when its reads end now.
    pub(super) fn after_reads(&mut self, place: &Place, store: StoreId) -> Rc<Vec<u32>> {
        let waiting = &self.programs[place.program as usize];
        let footprint = waiting.footprint;
        let view = if waiting.reads { self.view(store, footprint) } else { u32::MAX };
        // What luck is left does not matter here, and nearly always there is as much.
        let memo = (self.place_ids[place], view);
        if let Some(known) = self.reads_known.get(&memo) {
            return known.clone();
        }
        let mut programs = Vec::new();
        let before = self.programs[place.program as usize].future;
        for answers in self.answers(place, view).into_iter().map(|(_, a)| a) {
            let mut program = self.programs[place.program as usize].program.copy();
            let asks = program.step(answers);
            let said = program.said();
            if !said.is_empty() {
                *self.said.entry(said).or_default() += 1;
            }
            let id = self.program(program, asks);
            assert!(
                self.loose || self.programs[id as usize].future.within(&before),
                "{:?} declares more than before",
                self.programs[id as usize].program
            );
            programs.push(id);
        }
        // Not sorted: the order is that of the choices, for the trace.
        let mut seen = std::collections::HashSet::new();
        programs.retain(|p| seen.insert(*p));
        let programs = Rc::new(programs);
        self.reads_known.insert(memo, programs.clone());
        programs
    }

    /// Every set of answers to what an actor waits for, with what was seen of the keys that changed meanwhile.
    pub(super) fn answers(&self, place: &Place, view: u32) -> Vec<(String, Vec<Answer>)> {
        let waiting = &self.programs[place.program as usize];
        let none = Rc::new(Vec::new());
        let of = |v: u32| if v == u32::MAX { &none } else { &self.views[v as usize] };
        let (seen, now) = (of(place.seen), of(view));
        let key = |o: Obj| self.world.objects[o as usize].key;
        let mut fixed: Vec<Obj> = Vec::new();
        let mut changed: Vec<(KeyId, Vec<Option<Obj>>)> = Vec::new();
        let mut keys: Vec<KeyId> = seen.iter().chain(now.iter()).chain(&place.flux).map(|o| key(*o)).collect();
        keys.sort_unstable();
        keys.dedup();
        for k in keys {
            let find = |view: &[Obj]| view.iter().copied().find(|o| key(*o) == k);
            let mut options = vec![find(seen), find(now)];
            for o in place.flux.iter().filter(|o| key(**o) == k) {
                options.extend([None, Some(*o)]);
            }
            options.sort_unstable();
            options.dedup();
            match options[..] {
                [Some(obj)] => fixed.push(obj),
                _ => changed.push((k, options)),
            }
        }
        let combinations: usize = changed.iter().map(|(_, o)| o.len()).product();
        assert!(combinations <= COMBINATIONS, "{combinations} ways to read {:?}", waiting.asks);
        let mut out = Vec::with_capacity(combinations);
        for mut n in 0..combinations {
            let mut objs = fixed.clone();
            let mut words = Vec::new();
            for (k, options) in &changed {
                let picked = options[n % options.len()];
                n /= options.len();
                objs.extend(picked);
                words.push(format!(
                    "{} {}",
                    short(&self.world.keys[*k as usize]),
                    if picked.is_some() { "seen" } else { "missed" }
                ));
            }
            out.push((words.join(", "), self.answer(waiting, place, &objs)));
        }
        out
    }

    pub(super) fn answer(&self, waiting: &Waiting, place: &Place, objs: &[Obj]) -> Vec<Answer> {
        let mut replies = place.replies.iter();
        let at = |key: &Key| objs.iter().copied().find(|o| self.world.key_of(*o) == key);
        let answer = |ask: &Ask| match ask {
            Ask::List(prefix) => {
                let below = |k: &&Key| k.as_str().starts_with(prefix.as_str());
                let mut keys: Vec<Key> = objs.iter().map(|o| self.world.key_of(*o)).filter(below).cloned().collect();
                keys.sort();
                Answer::Listed(keys)
            }
            Ask::Blobs => {
                let blob = |o: &Obj| match self.world.key_of(*o).parts() {
                    KeyParts::Blob(name) => Some((*name, length_of(&self.world, *o))),
                    _ => None,
                };
                let mut blobs: Vec<_> = objs.iter().filter_map(blob).collect();
                blobs.sort();
                Answer::Blobs(blobs)
            }
            Ask::Get(key) => Answer::Got(at(key).map(|o| self.world.bytes_of(o).clone())),
            Ask::Head(key) => Answer::Headed(at(key).map(|o| length_of(&self.world, o))),
            Ask::Create(..) => match replies.next() {
                Some(Reply::Met(Met::Nothing)) => Answer::Created(Created::New),
                Some(Reply::Met(Met::Itself)) => Answer::Created(Created::Ours),
                Some(Reply::Met(Met::Other(o))) => Answer::Created(Created::Other(self.world.bytes_of(*o).clone())),
                other => panic!("{other:?} to a create"),
            },
            Ask::Upload(..) => replies.next().map(|_| Answer::Uploaded).expect("a reply"),
            Ask::Delete(..) => replies.next().map(|_| Answer::Deleted).expect("a reply"),
        };
        waiting.asks.iter().map(answer).collect()
    }
}
