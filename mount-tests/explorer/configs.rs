//! The named configurations.

use super::script::{A, Config, Op, Role, Snapshot};
use super::search::Luck;

fn role(name: &'static str, id: u8, ops: Vec<Op>) -> Role {
    Role { name, id, ops, luck: Luck::default() }
}

pub fn all() -> Vec<Config> {
    let shared = Snapshot::of(A, b"s");
    vec![
        Config {
            name: "two writers",
            before: vec![],
            roles: vec![
                role("w1", 1, vec![Op::Checkpoint(shared)]),
                role("w2", 2, vec![Op::Checkpoint(shared)]),
            ],
        },
        Config {
            name: "one writer, one sweeper, one reader",
            before: vec![role("w0", 9, vec![Op::Checkpoint(shared)])],
            roles: vec![
                role("w1", 1, vec![Op::Checkpoint(shared)]),
                role("expirer", 3, vec![Op::Expire(A, 1)]),
                role("sweeper", 4, vec![Op::Sweep]),
                role("reader", 5, vec![Op::Pin(A, 1), Op::Unpin(A, 1)]),
            ],
        },
    ]
}
