//! What an actor at a place can do with a store.

use std::rc::Rc;

use ckptfs::types::KeyParts;

use super::super::program::{Answer, Claim};
use super::super::world::{Met, Obj, StoreId};
use super::{Event, Luck, Move, Place, Reply, Search, Write};

impl Search {
    pub(super) fn claims(&self, place: u32) -> Rc<Vec<Claim>> {
        self.programs[self.places[place as usize].program as usize].claims.clone()
    }

    /// What an actor at a place can do with a store, whoever else is there.
    pub(super) fn moves(&mut self, at: u32, store: StoreId) -> Rc<Vec<Move>> {
        if let Some(known) = self.moves_known.get(&(at, store)) {
            return known.clone();
        }
        let moves = Rc::new(self.all_moves(at, store));
        self.moves_known.insert((at, store), moves.clone());
        moves
    }

    pub(super) fn all_moves(&mut self, at: u32, store: StoreId) -> Vec<Move> {
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
    pub(super) fn told(&mut self, place: Place, store: StoreId) -> u32 {
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
    pub(super) fn noted(&mut self, at: u32, before: StoreId, after: StoreId) -> u32 {
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

    pub(super) fn write(&mut self, store: StoreId, write: Write) -> (Met, StoreId, Option<Obj>, Option<String>) {
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
}
