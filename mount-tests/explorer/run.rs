//! Runs a configuration: first what was before, one actor after the other, then the search.

use bytes::Bytes;
use ckptfs::types::Key;

use super::program::Program;
use super::script::{Config, Role};
use super::search::{Actor, Report, Search};

/// Makes an actor of a role.
pub trait Cast: Fn(Role) -> Box<dyn Program> {}
impl<F: Fn(Role) -> Box<dyn Program>> Cast for F {}

pub fn run(config: &Config, cast: impl Cast, limit: usize) -> Report {
    let mut store: Vec<(Key, Bytes)> = Vec::new();
    for role in &config.before {
        let actor = Actor { name: role.name.to_owned(), program: cast(role.clone()), luck: role.luck };
        store = Search::new(vec![actor], &store, config.loose).straight();
    }
    let actors = config.roles.iter().map(|role| Actor {
        name: role.name.to_owned(),
        program: cast(role.clone()),
        luck: role.luck,
    });
    Search::new(actors.collect(), &store, config.loose).run(limit)
}
