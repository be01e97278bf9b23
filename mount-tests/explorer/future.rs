//! What an actor may still ask, by what it is about to do: the search relies on it and holds the actor to it.

use ckptfs::types::RecordKind;

use super::program::{Future, Keys};
use super::script::Op;

/// What an op may do.
pub fn of(op: Op, id: u8) -> Future {
    use RecordKind::{Blobs, Epoch, Expired, Floor, Hidden, Intent, Outcome, Pin, Task};
    let all = Keys::ALL;
    let (mut creates, mut deletes, mut reads) = (Keys::default(), Keys::default(), Keys::default());
    let mut completes = false;
    match op {
        Op::TakeOver(job) => {
            for kind in [Epoch, Floor, Intent, Outcome, Expired] {
                reads = reads.with(kind, job, all);
            }
            creates = creates.with(Epoch, job, all).with(Outcome, job, all);
        }
        Op::Checkpoint(snapshot) => {
            let job = snapshot.job;
            for kind in [Epoch, Floor, Intent, Outcome, Expired, Pin, Task] {
                reads = reads.with(kind, job, all);
            }
            if let Some((job, n)) = snapshot.restored {
                let n = Keys::number(n);
                reads = reads
                    .with(Floor, job, all)
                    .with(Outcome, job, n)
                    .with(Expired, job, n)
                    .with(Pin, job, n)
                    .with(Task, job, n);
            }
            reads = reads.with(Blobs, 0, all);
            let numbers = snapshot.number.map_or(all, Keys::number);
            creates = creates
                .with(Intent, job, numbers)
                .with(Task, job, numbers)
                .with(Outcome, job, all)
                .with(Expired, job, all)
                .with(Blobs, 0, Keys::number(u64::from(id)));
        }
        Op::Abort(job, n) => {
            let n = Keys::number(n);
            reads = reads.with(Intent, job, n);
            creates = creates.with(Outcome, job, n);
        }
        Op::Complete(job, n) => {
            completes = true;
            for kind in [Outcome, Expired, Task] {
                reads = reads.with(kind, job, all);
            }
            reads = reads.with(Intent, job, Keys::number(n)).with(Blobs, 0, all);
            creates = creates.with(Outcome, job, Keys::number(n)).with(Expired, job, all);
        }
        Op::Expire(job, n) => {
            let n = Keys::number(n);
            reads = reads.with(Outcome, job, n);
            creates = creates.with(Expired, job, n);
        }
        Op::Pin(job, n) | Op::Hold(job, n) => {
            let n = Keys::number(n);
            reads = reads.with(Outcome, job, n).with(Expired, job, n).with(Floor, job, all);
            creates = creates.with(Pin, job, n);
            deletes = deletes.with(Pin, job, n);
        }
        Op::Unpin(job, n) | Op::UnpinOf(job, n, ..) => deletes = deletes.with(Pin, job, Keys::number(n)),
        Op::Sweep | Op::Forget => {
            for kind in [Blobs, Expired, Pin, Intent, Outcome, Floor, Task] {
                reads = reads.with_kind(kind);
            }
            deletes = deletes.with_kind(Blobs);
            if op == Op::Forget {
                creates = creates.with_kind(Floor);
                reads = reads.with_kind(Hidden);
                for kind in [Task, Hidden, Intent, Outcome, Expired] {
                    deletes = deletes.with_kind(kind);
                }
            }
        }
    }
    Future { creates, deletes, reads, completes }
}
