//! A trace in words.

use ckptfs::types::{BlobName, Key, KeyParts};

use super::super::program::Ask;
use super::super::world::{Met, Obj};
use super::{Event, Nexts, Place, Reply, Search, Write};

impl Search {
    pub(super) fn trace(&mut self, to: u32) -> Vec<String> {
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

    pub(super) fn explain(&mut self, state: &[u32], actor: usize, event: Event) -> String {
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

    pub(super) fn says(&self, place: &Place, view: u32, choice: usize) -> String {
        let answers = self.answers(place, view).into_iter().nth(choice).map(|(_, a)| a).unwrap_or_default();
        let mut program = self.programs[place.program as usize].program.copy();
        program.step(answers);
        let said = program.said();
        if said.is_empty() { said } else { format!(" => {said}") }
    }

    pub(super) fn asked(&self, program: u32) -> String {
        let words = self.programs[program as usize].asks.iter().map(|ask| match ask {
            Ask::List(prefix) => format!("list {prefix}"),
            Ask::Blobs => "list blobs/".to_owned(),
            Ask::Get(key) | Ask::Head(key) => short(key),
            Ask::Create(key, _) | Ask::Delete(key) => short(key),
            Ask::Upload(blob, _) => short(&Key::blob(blob)),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn verdict(&self, obj: Obj) -> &'static str {
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
