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
    Role { name, id, ops: ops.to_vec(), luck: Luck::default(), tries: 2 }
}

fn with(mut role: Role, luck: Luck) -> Role {
    role.luck = luck;
    role
}

/// One try is enough.
fn once(mut role: Role) -> Role {
    role.tries = 1;
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
    role(["sweeper", "sweeper 2"][usize::from(id)], 12, &[Op::Sweep])
}

fn forgetter(id: u8) -> Role {
    role(["forgetter", "forgetter 2"][usize::from(id)], 14 + id, &[Op::Forget])
}

fn reader(n: u64) -> Role {
    role("reader", 16, &[Op::Pin(A, n), Op::Unpin(A, n)])
}

fn config(name: &'static str, before: &[Op], roles: Vec<Role>) -> Config {
    let before = if before.is_empty() { Vec::new() } else { vec![role("w0", 3, before)] };
    Config { name, before, roles, loose: false }
}

/// What was before in most: a completed checkpoint.
const FIRST: &[Op] = &[Op::Checkpoint(S)];

const TWO: &[Op] = &[Op::Checkpoint(S), Op::Checkpoint(S)];

/// All of them.
pub fn all() -> Vec<Config> {
    let hold = [Op::Hold(A, 1), Op::Checkpoint(S.from(A, 1)), Op::Unpin(A, 1)];
    let clone = [Op::Hold(A, 1), Op::Checkpoint(Snapshot::of(B, b"s").from(A, 1)), Op::Unpin(A, 1)];
    vec![
        config(
            "2 writers, 1 sweeper, 1 reader",
            FIRST,
            vec![once(writer(1)), once(writer(2)), sweeper(0), role("reader", 16, &[Op::Pin(A, 1)]), expirer(1)],
        ),
        config("1 writer, 2 sweepers, 1 reader", FIRST, vec![writer(1), sweeper(0), sweeper(1), reader(1), expirer(1)]),
        config(
            "2 writers, 2 sweepers",
            FIRST,
            vec![once(writer(1)), once(writer(2)), sweeper(0), sweeper(1), expirer(1)],
        ),
        config(
            "2 writers, 1 sweeper, 1 aborter",
            FIRST,
            vec![once(writer(1)), once(writer(2)), sweeper(0), expirer(1), aborter(2)],
        ),
        config("killed writers", &[], vec![with(writer(1), UNLUCKY), with(writer(2), LOST), aborter(1)]),
        config(
            "adoption",
            FIRST,
            vec![
                with(role("w1", 1, &[Op::Checkpoint(Snapshot::of(A, b"sx"))]), KILLED),
                sweeper(0),
                aborter(2),
                expirer(2),
                role("expirer of 1", 17, &[Op::Expire(A, 1)]),
            ],
        ),
        config(
            "careless adoption",
            &[],
            vec![with(role("w1", 1, &[Op::Checkpoint(S.careless())]), KILLED), sweeper(0), expirer(1)],
        ),
        config(
            "own-pinned base",
            FIRST,
            vec![
                with(role("w1", 1, &hold), KILLED),
                expirer(1),
                role("person", 17, &[Op::UnpinOf(A, 1, 1, 0)]),
                sweeper(0),
            ],
        ),
        config("two jobs", FIRST, vec![role("clone", 1, &clone), writer(2), expirer(1), sweeper(0)]),
        config(
            "a pin twice",
            FIRST,
            vec![
                with(role("reader", 16, &[Op::Pin(A, 1), Op::Unpin(A, 1), Op::Pin(A, 1)]), COPIED),
                expirer(1),
                sweeper(0),
            ],
        ),
        config(
            "take-over",
            &[],
            vec![
                with(role("old", 1, &[Op::TakeOver(A), Op::Checkpoint(S), Op::Checkpoint(S)]), LOST),
                with(role("new", 2, &[Op::TakeOver(A), Op::Checkpoint(S)]), KILLED),
            ],
        ),
        config("forget", FIRST, vec![with(expirer(1), COPIED), once(writer(1)), forgetter(0), reader(1)]),
        config("two forget", FIRST, vec![expirer(1), once(writer(1)), forgetter(0), forgetter(1)]),
        config(
            "forget a base",
            TWO,
            vec![once(writer(1)), role("expirer", 10, &[Op::Expire(A, 1), Op::Expire(A, 2)]), forgetter(0)],
        ),
        config(
            "forget what was open",
            &[],
            vec![role("w1", 1, &[Op::Checkpoint(S), Op::Checkpoint(S)]), expirer(1), sweeper(0), forgetter(0)],
        ),
        config("an aborter and an adopter", &[], vec![with(writer(1), KILLED), aborter(1)]),
        config(
            "given numbers",
            FIRST,
            vec![
                role("w1", 1, &[Op::Checkpoint(S.numbered(3).ending(End::Abort)), Op::Expire(A, 3)]),
                role("w2", 2, &[Op::Checkpoint(S.numbered(3))]),
                role("w3", 5, &[Op::Checkpoint(S.numbered(2))]),
                forgetter(0),
            ],
        ),
        config(
            "floors",
            &[Op::Checkpoint(S), Op::Checkpoint(S), Op::Checkpoint(S)],
            vec![
                role("expirer of 1", 17, &[Op::Expire(A, 1)]),
                role("expirer of 2", 10, &[Op::Expire(A, 2)]),
                forgetter(0),
                forgetter(1),
                reader(1),
            ],
        ),
        config("failing store", FIRST, vec![writer(1), with(sweeper(0), FAILING), expirer(1)]),
        config(
            "detached",
            FIRST,
            vec![
                role("w1", 1, &[Op::Checkpoint(S.ending(End::Leave))]),
                role("completer", 18, &[Op::Complete(A, 2)]),
                aborter(2),
                expirer(1),
                sweeper(0),
            ],
        ),
    ]
}

/// Larger ones, for a long run.
pub fn large() -> Vec<Config> {
    vec![
        config(
            "large: 2 writers, 1 sweeper, 1 reader",
            FIRST,
            vec![writer(1), writer(2), sweeper(0), reader(1), expirer(1), aborter(2)],
        ),
        config(
            "large: 1 writer, 2 sweepers, 1 reader",
            FIRST,
            vec![with(writer(1), KILLED), sweeper(0), sweeper(1), reader(1), expirer(1), aborter(2)],
        ),
        config(
            "large: 2 writers, 2 sweepers",
            FIRST,
            vec![writer(1), writer(2), sweeper(0), sweeper(1), expirer(1), aborter(2)],
        ),
        config(
            "large: forget",
            FIRST,
            vec![with(expirer(1), COPIED), writer(1), forgetter(0), forgetter(1), reader(1)],
        ),
        config(
            "large: forget a base",
            FIRST,
            vec![
                role("w1", 1, &[Op::Checkpoint(S), Op::Checkpoint(S)]),
                role("expirer", 10, &[Op::Expire(A, 1), Op::Expire(A, 2)]),
                sweeper(0),
                forgetter(0),
            ],
        ),
    ]
}
