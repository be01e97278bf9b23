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

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;
use ckptfs::store::Created;
use ckptfs::types::{BlobName, Digest, Key, KeyParts, Prefix};

use super::judge::Judge;
use super::program::{Answer, Ask, Claim, Future, Keys, Program};
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

/// The most combinations of changed keys that one batch of reads may see.
const COMBINATIONS: usize = 1 << 14;

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

    // Interning.

    fn program(&mut self, program: Box<dyn Program>, asks: Vec<Ask>) -> u32 {
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

    fn footprint(&mut self, footprint: Footprint) -> u32 {
        if let Some(id) = self.footprint_ids.get(&footprint) {
            return *id;
        }
        let id = u32::try_from(self.footprints.len()).expect("fewer footprints");
        self.footprints.push(footprint.clone());
        self.covered.push(Vec::new());
        self.footprint_ids.insert(footprint, id);
        id
    }

    fn covers(&mut self, footprint: u32, key: KeyId) -> bool {
        let known = &mut self.covered[footprint as usize];
        let key = key as usize;
        if known.len() <= key {
            known.resize(key + 1, None);
        }
        let (footprints, world) = (&self.footprints, &self.world);
        *known[key].get_or_insert_with(|| footprints[footprint as usize].covers(&world.keys[key]))
    }

    fn view(&mut self, store: StoreId, footprint: u32) -> u32 {
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
    fn placed(&mut self, program: u32, store: StoreId, luck: Luck, astray: Vec<Write>) -> u32 {
        let waiting = &self.programs[program as usize];
        let replies = vec![Reply::None; waiting.writes.len()];
        let (reads, footprint) = (waiting.reads, waiting.footprint);
        let luck = if waiting.asks.is_empty() { Luck::default() } else { luck };
        let seen = if reads { self.view(store, footprint) } else { u32::MAX };
        self.no_peeping(program, store);
        self.place(Place { program, replies, seen, flux: Vec::new(), luck, astray })
    }

    /// Acks of undecided numbers are read by those who complete them, and by nobody else: the reduction relies on it.
    fn no_peeping(&self, program: u32, store: StoreId) {
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

    fn place(&mut self, place: Place) -> u32 {
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

    // Judging.

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

    /// Whether nobody else can change what this actor's next step reads, or see what it writes.
    fn alone(&mut self, state: &[u32], actor: usize) -> bool {
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

    fn needs(&mut self, place: u32, store: StoreId) -> Option<Rc<Alone>> {
        if let Some(known) = self.alone_known.get(&(place, store)) {
            return known.clone();
        }
        let needs = self.needed(place, store).map(Rc::new);
        self.alone_known.insert((place, store), needs.clone());
        needs
    }

    fn needed(&self, place: u32, store: StoreId) -> Option<Alone> {
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

    fn claims(&self, place: u32) -> Rc<Vec<Claim>> {
        self.programs[self.places[place as usize].program as usize].claims.clone()
    }

    /// What an actor at a place can do with a store, whoever else is there.
    fn moves(&mut self, at: u32, store: StoreId) -> Rc<Vec<Move>> {
        if let Some(known) = self.moves_known.get(&(at, store)) {
            return known.clone();
        }
        let moves = Rc::new(self.all_moves(at, store));
        self.moves_known.insert((at, store), moves.clone());
        moves
    }

    fn all_moves(&mut self, at: u32, store: StoreId) -> Vec<Move> {
        let place = self.places[at as usize].clone();
        let mut moves = Vec::new();
        let step = |event, store, place| Move { event, store, place, decides: None, wrong: None };
        for i in 0..place.astray.len() {
            let event = Event::Astray { at: i };
            let mut rest = (*place).clone();
            let write = rest.astray.remove(i);
            let rest = self.place(rest);
            let (_, to, decides, wrong) = self.write(store, write);
            moves.push(Move { event, store: to, place: rest, decides, wrong });
        }
        if self.programs[place.program as usize].asks.is_empty() {
            return moves;
        }
        let writes = self.programs[place.program as usize].writes.clone();
        for (i, (_, write)) in writes.iter().enumerate() {
            if place.replies[i] != Reply::None {
                continue;
            }
            let event = Event::Write { at: i, lost: false, copied: false };
            let (met, to, decides, wrong) = self.write(store, *write);
            let changed = to != store;
            let mut told = (*place).clone();
            told.replies[i] = match write {
                Write::Create(_) => Reply::Met(met),
                Write::Upload(_) | Write::Delete(_) => Reply::Done,
            };
            let then = self.told(told.clone(), to);
            let failed = wrong.is_some();
            moves.push(Move { event, store: to, place: then, decides, wrong });
            if failed {
                continue;
            }
            if changed && place.luck.lost > 0 {
                let mut lost = (*place).clone();
                lost.luck.lost -= 1;
                let then = self.place(lost);
                let event = Event::Write { at: i, lost: true, copied: false };
                moves.push(Move { event, store: to, place: then, decides, wrong: None });
            }
            if changed && place.luck.copies > 0 && !matches!(write, Write::Upload(_)) {
                told.luck.copies -= 1;
                told.astray.push(*write);
                told.astray.sort_unstable();
                let then = self.told(told, to);
                let event = Event::Write { at: i, lost: false, copied: true };
                moves.push(Move { event, store: to, place: then, decides, wrong: None });
            }
        }
        if place.replies.iter().all(|r| *r != Reply::None) {
            for (choice, program) in self.after_reads(&place, store).iter().enumerate() {
                let then = self.placed(*program, store, place.luck, place.astray.clone());
                moves.push(step(Event::Read { choice }, store, then));
            }
        }
        if place.luck.kills > 0 {
            let mut program = self.programs[place.program as usize].program.restarted();
            let asks = program.step(Vec::new());
            let program = self.program(program, asks);
            let mut astray = place.astray.clone();
            let sent = writes.iter().zip(&place.replies).filter(|(_, r)| **r == Reply::None).map(|((_, w), _)| *w);
            astray.extend(sent);
            astray.sort_unstable();
            astray.dedup();
            let luck = Luck { kills: place.luck.kills - 1, ..place.luck };
            let then = self.placed(program, store, luck, astray);
            moves.push(step(Event::Kill, store, then));
        }
        if place.luck.failures > 0 {
            let mut program = self.programs[place.program as usize].program.copy();
            let answers = self.programs[place.program as usize].asks.iter().map(|_| Answer::Failed).collect();
            let asks = program.step(answers);
            let program = self.program(program, asks);
            let luck = Luck { failures: place.luck.failures - 1, ..place.luck };
            let then = self.placed(program, store, luck, place.astray.clone());
            moves.push(step(Event::Fail, store, then));
        }
        moves
    }

    /// After a reply: waits for the others, or goes on.
    fn told(&mut self, place: Place, store: StoreId) -> u32 {
        let waiting = &self.programs[place.program as usize];
        if waiting.reads || place.replies.contains(&Reply::None) {
            return self.place(place);
        }
        self.place(place.clone());
        let programs = self.after_reads(&place, store);
        let [program] = programs[..] else { panic!("one reply, one way on") };
        self.placed(program, store, place.luck, place.astray)
    }

    /// Where another is when the store changes: what came and went is noted by those who are reading.
    fn noted(&mut self, at: u32, before: StoreId, after: StoreId) -> u32 {
        if self.places[at as usize].seen == u32::MAX {
            return at;
        }
        if let Some(known) = self.noted_known.get(&(at, before, after)) {
            return *known;
        }
        let place = self.places[at as usize].clone();
        let (old, new) = (self.world.get(before), self.world.get(after));
        let gone = old.present.iter().find(|o| !new.has(**o)).copied();
        let came = new.present.iter().find(|o| !old.has(**o)).copied();
        let footprint = self.programs[place.program as usize].footprint;
        let seen = self.views[place.seen as usize].clone();
        let mut flux = place.flux.clone();
        if let Some(o) = gone
            && self.covers(footprint, self.world.objects[o as usize].key)
            && !seen.contains(&o)
        {
            flux.push(o);
        }
        if let Some(o) = came
            && let key = self.world.objects[o as usize].key
            && self.covers(footprint, key)
            && let Some(was) = seen.iter().find(|s| self.world.objects[**s as usize].key == key)
        {
            flux.push(*was);
        }
        let mut to = at;
        if flux.len() > place.flux.len() {
            flux.sort_unstable();
            flux.dedup();
            to = self.place(Place { flux, ..(*place).clone() });
        }
        self.noted_known.insert((at, before, after), to);
        to
    }

    fn write(&mut self, store: StoreId, write: Write) -> (Met, StoreId, Option<Obj>, Option<String>) {
        match write {
            Write::Upload(obj) | Write::Create(obj) => {
                let (met, to) = self.world.create(store, obj);
                let outcome = matches!(self.world.key_of(obj).parts(), KeyParts::Outcome(..));
                (met, to, (outcome && met == Met::Nothing).then_some(obj), None)
            }
            Write::Delete(key) => {
                let set = self.world.get(store);
                let (was, to) = self.world.delete(store, key);
                let wrong = was.and_then(|obj| self.judge.deleted(&self.world, &set, obj));
                (Met::Nothing, to, None, wrong)
            }
        }
    }

    /// The programs that an actor may be when its reads end now.
    fn after_reads(&mut self, place: &Place, store: StoreId) -> Rc<Vec<u32>> {
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
    fn answers(&self, place: &Place, view: u32) -> Vec<(String, Vec<Answer>)> {
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

    fn answer(&self, waiting: &Waiting, place: &Place, objs: &[Obj]) -> Vec<Answer> {
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
                    KeyParts::Blob(name) => Some((*name, super::judge::length_of(&self.world, *o))),
                    _ => None,
                };
                let mut blobs: Vec<_> = objs.iter().filter_map(blob).collect();
                blobs.sort();
                Answer::Blobs(blobs)
            }
            Ask::Get(key) => Answer::Got(at(key).map(|o| self.world.bytes_of(o).clone())),
            Ask::Head(key) => Answer::Headed(at(key).map(|o| super::judge::length_of(&self.world, o))),
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

    // Words.

    fn trace(&mut self, to: u32) -> Vec<String> {
        let mut path = vec![to];
        while let Some(at) = path.last().copied()
            && at != 0
        {
            path.push(self.parents[at as usize]);
        }
        path.reverse();
        let mut words = Vec::new();
        let mut nexts = Nexts::default();
        for pair in path.windows(2) {
            let (from, to) = (self.state(pair[0]).to_vec(), self.state(pair[1]).to_vec());
            self.expand(&from, &mut nexts);
            let mut found = nexts.states.chunks_exact(self.stride).zip(&nexts.events);
            let (actor, event) = *found.find(|(s, _)| **s == to).map(|(_, e)| e).expect("the step was taken before");
            words.push(self.explain(&from, actor, event));
        }
        words
    }

    fn explain(&mut self, state: &[u32], actor: usize, event: Event) -> String {
        let place = self.places[state[actor + 1] as usize].clone();
        let name = self.names[actor].clone();
        let words = |s: &Self, write: Write| match write {
            Write::Create(o) => format!("creates {}{}", short(s.world.key_of(o)), s.verdict(o)),
            Write::Upload(o) => format!("uploads {}", short(s.world.key_of(o))),
            Write::Delete(k) => format!("deletes {}", short(&s.world.keys[k as usize])),
        };
        match event {
            Event::Kill => format!("{name} is killed and started again"),
            Event::Fail => format!("{name}: {} fails", self.asked(place.program)),
            Event::Astray { at } => {
                let write = words(self, place.astray[at]);
                format!("a late request of {name} {write}")
            }
            Event::Write { at, lost, copied } => {
                let write = self.programs[place.program as usize].writes[at].1;
                let mut text = format!("{name} {}", words(self, write));
                let (met, ..) = self.write(state[0], write);
                match met {
                    Met::Other(o) => text += &format!(": another is there{}", self.verdict(o)),
                    Met::Itself => text += ": it is there already",
                    Met::Nothing => {}
                }
                if lost {
                    text += " (the answer is lost)";
                }
                if copied {
                    text += " (a copy is on its way)";
                }
                let mut told = (*place).clone();
                let reply = if matches!(write, Write::Create(_)) { Reply::Met(met) } else { Reply::Done };
                told.replies[at] = reply;
                if !lost && !self.programs[told.program as usize].reads && !told.replies.contains(&Reply::None) {
                    text += &self.says(&told, u32::MAX, 0);
                }
                text
            }
            Event::Read { choice } => {
                let waiting = &self.programs[place.program as usize];
                let view = if waiting.reads { self.view(state[0], waiting.footprint) } else { u32::MAX };
                let wanted = self.after_reads(&place, state[0])[choice];
                let all = self.answers(&place, view);
                let mut text = format!("{name} reads {}", self.asked(place.program));
                for (i, (changed, answers)) in all.iter().enumerate() {
                    let mut program = self.programs[place.program as usize].program.copy();
                    let asks = program.step(answers.clone());
                    if self.program(program, asks) == wanted {
                        if !changed.is_empty() {
                            text += &format!(" (meanwhile: {changed})");
                        }
                        text += &self.says(&place, view, i);
                        break;
                    }
                }
                text
            }
        }
    }

    fn says(&self, place: &Place, view: u32, choice: usize) -> String {
        let answers = self.answers(place, view).into_iter().nth(choice).map(|(_, a)| a).unwrap_or_default();
        let mut program = self.programs[place.program as usize].program.copy();
        program.step(answers);
        let said = program.said();
        if said.is_empty() { said } else { format!(" => {said}") }
    }

    fn asked(&self, program: u32) -> String {
        let words = self.programs[program as usize].asks.iter().map(|ask| match ask {
            Ask::List(prefix) => format!("list {prefix}"),
            Ask::Blobs => "list blobs/".to_owned(),
            Ask::Get(key) | Ask::Head(key) => short(key),
            Ask::Create(key, _) | Ask::Delete(key) => short(key),
            Ask::Upload(blob, _) => short(&Key::blob(blob)),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    fn verdict(&self, obj: Obj) -> &'static str {
        let text = String::from_utf8_lossy(self.world.bytes_of(obj));
        match self.world.key_of(obj).parts() {
            KeyParts::Outcome(..) if text.contains("\"completed\":") => " = completed",
            KeyParts::Outcome(..) => " = aborted",
            _ => "",
        }
    }
}

/// A key for people: without the zeros of numbers, and with uids by who made them.
pub fn short(key: &Key) -> String {
    let uid = |b: &BlobName| b.uid.as_bytes()[..4].iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    match key.parts() {
        KeyParts::Blob(b) => format!("blob {} of {}", &b.digest.to_hex()[..4], uid(b)),
        _ => key
            .as_str()
            .trim_end_matches(".json")
            .split('/')
            .map(|p| {
                let p = p.trim_start_matches('0');
                p.chars().take(24).collect::<String>()
            })
            .collect::<Vec<_>>()
            .join("/"),
    }
}
