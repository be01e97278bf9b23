//! The named configurations.
//!
//! The first three are of so many writers, sweepers and readers; beside them an impatient aborter and one who expires. The others look
//! at one corner each. Job `a` has mostly a completed `chk-1` to begin with, made by the same machines.

use super::script::{A, B, Config, End, Op, Role, Snapshot};
use super::search::Luck;

const KILLED: Luck = Luck { kills: 1, lost: 0, copies: 0, failures: 0 };
const LOST: Luck = Luck { kills: 0, lost: 1, copies: 0, failures: 0 };
const COPIED: Luck = Luck { kills: 0, lost: 0, copies: 1, failures: 0 };
const FAILING: Luck = Luck { kills: 0, lost: 0, copies: 0, failures: 1 };
const UNLUCKY: Luck = Luck { kills: 1, lost: 1, copies: 1, failures: 0 };

/// What all checkpoints have in common.
const S: Snapshot = Snapshot::of(A, b"s");

fn role(name: &'static str, id: u8, ops: &[Op]) -> Role {
    Role { name, id, ops: ops.to_vec(), luck: Luck::default() }
}

fn with(mut role: Role, luck: Luck) -> Role {
    role.luck = luck;
    role
}

fn writer(id: u8) -> Role {
    let name = ["w0", "w1", "w2", "w3"][usize::from(id)];
    role(name, id, &[Op::Checkpoint(S)])
}

fn expirer(n: u64) -> Role {
    role("expirer", 10, &[Op::Expire(A, n)])
}

fn aborter(n: u64) -> Role {
    role("aborter", 11, &[Op::Abort(A, n)])
}

fn sweeper(id: u8) -> Role {
    role(["sweeper", "sweeper 2"][usize::from(id)], 12 + id, &[Op::Sweep])
}

fn forgetter(id: u8) -> Role {
    role(["forgetter", "forgetter 2"][usize::from(id)], 14 + id, &[Op::Forget])
}

fn reader(n: u64) -> Role {
    role("reader", 16, &[Op::Pin(A, n), Op::Unpin(A, n)])
}

/// A writer that was there before.
fn earlier(ops: &[Op]) -> Role {
    role("w0", 3, ops)
}

pub fn all() -> Vec<Config> {
    let first = || vec![earlier(&[Op::Checkpoint(S)])];
    vec![
        Config {
            name: "2 writers, 1 sweeper, 1 reader",
            before: first(),
            roles: vec![writer(1), writer(2), sweeper(0), reader(1), expirer(1), aborter(2)],
        },
        Config {
            name: "1 writer, 2 sweepers, 1 reader",
            before: first(),
            roles: vec![with(writer(1), KILLED), sweeper(0), sweeper(1), reader(1), expirer(1), aborter(2)],
        },
        Config {
            name: "2 writers, 2 sweepers",
            before: first(),
            roles: vec![writer(1), writer(2), sweeper(0), sweeper(1), expirer(1), aborter(2)],
        },
        Config {
            name: "2 writers that are killed",
            before: vec![],
            roles: vec![with(writer(1), UNLUCKY), with(writer(2), KILLED), aborter(1)],
        },
        Config {
            name: "adoption",
            before: first(),
            roles: vec![
                with(role("w1", 1, &[Op::Checkpoint(Snapshot::of(A, b"sx"))]), KILLED),
                sweeper(0),
                aborter(2),
                expirer(2),
                role("expirer of 1", 17, &[Op::Expire(A, 1)]),
            ],
        },
        Config {
            name: "own-pinned base",
            before: first(),
            roles: vec![
                with(role("w1", 1, &[Op::Hold(A, 1), Op::Checkpoint(S.from(A, 1)), Op::Unpin(A, 1)]), KILLED),
                expirer(1),
                role("person", 17, &[Op::UnpinOf(A, 1, 1, 0)]),
                sweeper(0),
            ],
        },
        Config {
            name: "two jobs",
            before: first(),
            roles: vec![
                role("clone", 1, &[Op::Hold(A, 1), Op::Checkpoint(Snapshot::of(B, b"s").from(A, 1)), Op::Unpin(A, 1)]),
                writer(2),
                expirer(1),
                sweeper(0),
            ],
        },
        Config {
            name: "take-over",
            before: vec![],
            roles: vec![
                with(role("old", 1, &[Op::TakeOver(A), Op::Checkpoint(S), Op::Checkpoint(S)]), LOST),
                with(role("new", 2, &[Op::TakeOver(A), Op::Checkpoint(S)]), KILLED),
            ],
        },
        Config {
            name: "forget",
            before: first(),
            roles: vec![
                with(role("expirer", 10, &[Op::Expire(A, 1)]), COPIED),
                writer(1),
                forgetter(0),
                forgetter(1),
                reader(1),
            ],
        },
        Config {
            name: "given numbers",
            before: first(),
            roles: vec![
                role("w1", 1, &[Op::Checkpoint(S.numbered(2).ending(End::Abort)), Op::Expire(A, 2)]),
                role("w2", 2, &[Op::Checkpoint(S.numbered(2))]),
                forgetter(0),
                forgetter(1),
            ],
        },
        Config {
            name: "failing store",
            before: first(),
            roles: vec![writer(1), with(sweeper(0), FAILING), expirer(1)],
        },
        Config {
            name: "detached",
            before: first(),
            roles: vec![
                role("w1", 1, &[Op::Checkpoint(S.ending(End::Leave))]),
                role("completer", 18, &[Op::Complete(A, 2)]),
                aborter(2),
                expirer(1),
                sweeper(0),
            ],
        },
    ]
}
