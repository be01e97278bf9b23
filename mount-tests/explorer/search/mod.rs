//! The search: every reachable state of some actors on one store, each visited once.
//!
//! A state is the store and each actor's place. What an actor asks at once is taken like this:
//!
//! - each **create, delete and upload** is a step of its own, in any order. It may be performed and its answer lost: then it is sent
//!   again, later, and meets what is there by then. It may be sent twice, and the copy arrive at any later moment, or never;
//! - its **reads** (list, get, head) begin when they are asked and end in one later step. Each key is read at a moment of its own in
//!   between, in any order: a list is no more atomic than that. A list read in ascending or descending order, in ranges of any
//!   size, is among these;
//! - it may be **killed** before any step: what it sent may still arrive, and its process may be started again. (Being killed and not
//!   started again is the same as never being scheduled any more.)
//!
//! Reduction: when an actor waits for reads of keys that no other actor can change any more, or for an upload or an ack that no other
//! actor can see any more, only this actor is scheduled: these steps commute with all others. What an actor can still do is declared
//! by it, and held against what it really asks. Two actors that do the same are told apart by nothing (two sweepers, say).

mod alone;
mod moves;
mod reads;
mod waiting;
mod words;

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use ckptfs::types::{Digest, Key, Prefix};

use super::judge::Judge;
use super::program::{Ask, Claim, Future, Keys, Program};
use super::table::{Map, Table};
use super::world::{KeyId, Met, Obj, Set, StoreId, World};

/// How much may go wrong, per actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Luck {
    /// Killed and started again.
    pub kills: u8,
    /// Answers lost.
    pub lost: u8,
    /// Requests that arrive once more, later.
    pub copies: u8,
    /// Requests that fail.
    pub failures: u8,
}

/// An actor as the search begins.
pub struct Actor {
    pub name: String,
    pub program: Box<dyn Program>,
    pub luck: Luck,
}

/// What a search found.
#[derive(Debug)]
pub struct Report {
    pub states: usize,
    pub stores: usize,
    /// Different stores that nobody can change any more, as a digest.
    pub ends: String,
    /// Whether every state was visited.
    pub complete: bool,
    pub violation: Option<Violation>,
    /// How often each thing was said at the end of a step, for coverage.
    pub said: Vec<(String, usize)>,
}

/// A broken promise, and how it came about.
#[derive(Debug)]
pub struct Violation {
    pub what: String,
    pub trace: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Write {
    Create(Obj),
    Upload(Obj),
    Delete(KeyId),
}

/// A program, as it waits for its answers.
struct Waiting {
    program: Box<dyn Program>,
    asks: Vec<Ask>,
    writes: Vec<(usize, Write)>,
    footprint: u32,
    reads: bool,
    claims: Rc<Vec<Claim>>,
    future: Future,
    /// What all its lives may do.
    always: Future,
}

/// Keys that a batch of reads covers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Footprint {
    prefixes: Vec<Prefix>,
    keys: Vec<Key>,
}

impl Footprint {
    fn covers(&self, key: &Key) -> bool {
        self.keys.contains(key) || self.prefixes.iter().any(|p| key.as_str().starts_with(p.as_str()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reply {
    None,
    Met(Met),
    Done,
}

/// An actor's place: its program, what of its requests is done, and what can still go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    program: u32,
    replies: Vec<Reply>,
    /// What the reads would have seen when they were asked.
    seen: u32,
    /// What came and went since.
    flux: Vec<Obj>,
    luck: Luck,
    /// Requests on their way that nobody waits for.
    astray: Vec<Write>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Write { at: usize, lost: bool, copied: bool },
    Read { choice: usize },
    Astray { at: usize },
    Kill,
    Fail,
}

/// What an actor at a place can do with a store.
struct Move {
    event: Event,
    store: StoreId,
    place: u32,
    /// An outcome that it creates: those who reign are asked.
    decides: Option<Obj>,
    /// It must not be.
    wrong: Option<String>,
}

/// What must hold of the others' future for an actor to be scheduled alone.
struct Alone {
    creates: Keys,
    deletes: Keys,
    reads: Keys,
    completes: bool,
}

/// The states that come after one, one behind the other, and how.
#[derive(Default)]
struct Nexts {
    states: Vec<u32>,
    events: Vec<(usize, Event)>,
}

/// A search in progress.
pub struct Search {
    world: World,
    judge: Judge,
    names: Vec<String>,
    programs: Vec<Waiting>,
    program_ids: HashMap<Digest, u32>,
    footprints: Vec<Footprint>,
    footprint_ids: HashMap<Footprint, u32>,
    covered: Vec<Vec<Option<bool>>>,
    views: Vec<Rc<Vec<Obj>>>,
    view_ids: HashMap<Rc<Vec<Obj>>, u32>,
    view_of: Map<(StoreId, u32), u32>,
    places: Vec<Rc<Place>>,
    place_ids: HashMap<Rc<Place>, u32>,
    place_future: Vec<Future>,
    reads_known: Map<(u32, u32), Rc<Vec<u32>>>,
    ends: std::collections::BTreeSet<StoreId>,
    moves_known: Map<(u32, StoreId), Rc<Vec<Move>>>,
    alone_known: Map<(u32, StoreId), Option<Rc<Alone>>>,
    noted_known: Map<(u32, StoreId, StoreId), u32>,
    store_fine: Vec<bool>,
    claims_fine: Map<(StoreId, u32), ()>,
    stride: usize,
    /// Pairs of actors that are the same but for their names: which is which makes no difference.
    twins: Vec<(usize, usize)>,
    /// Nothing is reduced, and nothing declared.
    loose: bool,
    arena: Vec<u32>,
    parents: Vec<u32>,
    said: HashMap<String, usize>,
}

impl Search {
    /// A search of these actors on a store that holds these objects.
    pub fn new(actors: Vec<Actor>, store: &[(Key, Bytes)], loose: bool) -> Self {
        let mut search = Self {
            world: World::default(),
            judge: Judge::default(),
            names: actors.iter().map(|a| a.name.clone()).collect(),
            programs: Vec::new(),
            program_ids: HashMap::new(),
            footprints: Vec::new(),
            footprint_ids: HashMap::new(),
            covered: Vec::new(),
            views: Vec::new(),
            view_ids: HashMap::new(),
            view_of: Map::default(),
            places: Vec::new(),
            place_ids: HashMap::new(),
            place_future: Vec::new(),
            reads_known: Map::default(),
            ends: std::collections::BTreeSet::new(),
            moves_known: Map::default(),
            alone_known: Map::default(),
            noted_known: Map::default(),
            store_fine: Vec::new(),
            claims_fine: Map::default(),
            stride: actors.len() + 1,
            twins: Vec::new(),
            loose,
            arena: Vec::new(),
            parents: Vec::new(),
            said: HashMap::new(),
        };
        let mut set = Set::default();
        for (key, bytes) in store {
            set.present.push(search.world.object(key, bytes));
        }
        set.present.sort_unstable();
        let store = search.world.set(set);
        search.arena.push(store);
        search.parents.push(0);
        for mut actor in actors {
            let asks = actor.program.step(Vec::new());
            let program = search.program(actor.program, asks);
            let place = search.placed(program, store, actor.luck, Vec::new());
            search.arena.push(place);
        }
        for i in 1..search.stride {
            let twin = (i + 1..search.stride).find(|j| search.arena[*j] == search.arena[i]);
            search.twins.extend(twin.map(|j| (i, j)));
        }
        search
    }

    /// Visits every state, or stops at the first violation, or after this many states.
    pub fn run(mut self, limit: usize) -> Report {
        let mut table = Table::default();
        let first = self.arena[..self.stride].to_vec();
        table.insert(&first, 0, |_| unreachable!("the table is empty"));
        if let Some(what) = self.judged(&first) {
            return self.report(true, Some(Violation { what, trace: Vec::new() }));
        }
        let mut stack = vec![0u32];
        let mut nexts = Nexts::default();
        let stride = self.stride;
        let mut state = vec![0; stride];
        while let Some(at) = stack.pop() {
            state.copy_from_slice(self.state(at));
            if let Some((actor, event, what)) = self.expand(&state, &mut nexts) {
                let mut trace = self.trace(at);
                trace.push(self.explain(&state, actor, event));
                return self.report(false, Some(Violation { what, trace }));
            }
            if nexts.states.is_empty() {
                self.ends.insert(state[0]);
            }
            for to in nexts.states.chunks_exact(stride) {
                let id = u32::try_from(self.parents.len()).expect("fewer states");
                let arena = &self.arena;
                let same = |i: u32| arena[i as usize * stride..(i as usize + 1) * stride] == *to;
                if !table.insert(to, id, same) {
                    continue;
                }
                self.arena.extend_from_slice(to);
                self.parents.push(at);
                if let Some(what) = self.judged(to) {
                    let trace = self.trace(id);
                    return self.report(false, Some(Violation { what, trace }));
                }
                stack.push(id);
            }
            if self.parents.len() > limit {
                return self.report(false, None);
            }
        }
        self.report(true, None)
    }

    fn state(&self, at: u32) -> &[u32] {
        &self.arena[at as usize * self.stride..(at as usize + 1) * self.stride]
    }

    /// What is in the store when these actors have had their one way.
    pub fn straight(mut self) -> Vec<(Key, Bytes)> {
        let mut state = self.arena[..self.stride].to_vec();
        let mut nexts = Nexts::default();
        loop {
            self.expand(&state, &mut nexts);
            match nexts.states.get(..self.stride) {
                Some(to) => state.copy_from_slice(to),
                None => break,
            }
        }
        let set = self.world.get(state[0]);
        set.present.iter().map(|o| (self.world.key_of(*o).clone(), self.world.bytes_of(*o).clone())).collect()
    }

    fn report(mut self, complete: bool, violation: Option<Violation>) -> Report {
        let mut said: Vec<_> = std::mem::take(&mut self.said).into_iter().collect();
        said.sort();
        let mut ends: Vec<String> = self.ends.iter().map(|s| self.contents(*s)).collect();
        ends.sort();
        let ends = format!("{} of {}", Digest::of(ends.join("\n").as_bytes()).to_hex(), ends.len());
        Report { states: self.parents.len(), stores: self.world.sets.len(), ends, complete, violation, said }
    }

    fn contents(&self, store: StoreId) -> String {
        let set = &self.world.sets[store as usize];
        let mut objects: Vec<String> = set
            .present
            .iter()
            .map(|o| format!("{} {}", self.world.key_of(*o), Digest::of(self.world.bytes_of(*o)).to_hex()))
            .collect();
        objects.sort();
        objects.join(",")
    }

    fn judged(&mut self, state: &[u32]) -> Option<String> {
        let store = state[0];
        if self.store_fine.len() <= store as usize {
            self.store_fine.resize(store as usize + 1, false);
        }
        if !self.store_fine[store as usize] {
            let set = self.world.get(store);
            if let Some(what) = self.judge.store(&self.world, &set) {
                return Some(what);
            }
            self.store_fine[store as usize] = true;
        }
        if let Some(what) = self.rivals(state) {
            return Some(what);
        }
        for (actor, place) in state[1..].iter().enumerate() {
            let program = self.places[*place as usize].program;
            let claims = self.programs[program as usize].claims.clone();
            if claims.is_empty() || self.claims_fine.contains_key(&(store, program)) {
                continue;
            }
            let set = self.world.get(store);
            for claim in claims.iter() {
                if let Some(what) = self.judge.claim(&self.world, &set, claim) {
                    return Some(format!("{what} (promised to {})", self.names[actor]));
                }
            }
            self.claims_fine.insert((store, program), ());
        }
        None
    }

    /// Two that reign in one epoch.
    fn rivals(&self, state: &[u32]) -> Option<String> {
        let claims = |place: &u32| self.programs[self.places[*place as usize].program as usize].claims.clone();
        let mut reigns: Vec<Claim> = Vec::new();
        for place in &state[1..] {
            for claim in claims(place).iter().filter(|c| matches!(c, Claim::Reigns(..))) {
                if reigns.contains(claim) {
                    return Some(format!("two have {claim:?}"));
                }
            }
            reigns.extend(claims(place).iter().filter(|c| matches!(c, Claim::Reigns(..))).cloned());
        }
        None
    }

    // Steps.

    /// All states after this one. A step that must not be is returned with what is wrong with it.
    fn expand(&mut self, state: &[u32], nexts: &mut Nexts) -> Option<(usize, Event, String)> {
        nexts.states.clear();
        nexts.events.clear();
        let count = state.len() - 1;
        if !self.loose {
            for actor in 0..count {
                if self.alone(state, actor) {
                    return self.steps_of(state, actor, false, nexts);
                }
            }
        }
        for actor in 0..count {
            let found = self.steps_of(state, actor, true, nexts);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn steps_of(
        &mut self,
        state: &[u32],
        actor: usize,
        with_astray: bool,
        nexts: &mut Nexts,
    ) -> Option<(usize, Event, String)> {
        let moves = self.moves(state[actor + 1], state[0]);
        for step in moves.iter() {
            if !with_astray && matches!(step.event, Event::Astray { .. }) {
                continue;
            }
            if let Some(what) = &step.wrong {
                return Some((actor, step.event, what.clone()));
            }
            if let Some(obj) = step.decides {
                let claims: Vec<Claim> = state[1..].iter().flat_map(|p| self.claims(*p).to_vec()).collect();
                if let Some(what) = self.judge.created(&self.world, obj, &claims) {
                    return Some((actor, step.event, what));
                }
            }
            let from = nexts.states.len();
            nexts.states.extend_from_slice(state);
            nexts.states[from] = step.store;
            nexts.states[from + actor + 1] = step.place;
            if step.store != state[0] {
                for i in 1..state.len() {
                    if i != actor + 1 {
                        nexts.states[from + i] = self.noted(state[i], state[0], step.store);
                    }
                }
            }
            for (i, j) in &self.twins {
                if nexts.states[from + i] > nexts.states[from + j] {
                    nexts.states.swap(from + i, from + j);
                }
            }
            nexts.events.push((actor, step.event));
        }
        None
    }
}
