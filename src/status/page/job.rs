//! `/job/JOB`: a job's checkpoints over time.

use std::collections::BTreeSet;
use std::time::Duration;

use maud::{Markup, html};

use super::chart::{Point, chart};
use super::{Page, ago, checkpoint_link, freshness, plain, size, took};
use crate::error::{Error, Kind};
use crate::format::{CheckpointKind, phases};
use crate::lifecycle::Checkpoint;
use crate::status::Status;
use crate::status::known::Job;
use crate::types::{Name, Size, Utc};

/// How many checkpoints a chart shows: bars of some pixels each.
const SHOWN: usize = 200;

/// From begin to end, by its writer's clock.
pub(super) fn duration(c: &Checkpoint) -> Duration {
    Duration::from_millis(c.manifest.completed_ms.saturating_sub(c.manifest.opened_ms))
}

/// What an operator should look at.
pub(super) fn remarks(job: &Job) -> Markup {
    let listing = &job.listing;
    html! {
        @if !listing.unreadable.is_empty() { span.bad { (listing.unreadable.len()) " unreadable" } " " }
        @if !listing.aborted.is_empty() { span.bad { (listing.aborted.len()) " given up since" } " " }
        @if !listing.open.is_empty() { (listing.open.len()) " under way" }
    }
}

pub(super) fn page(status: &Status, name: &Name) -> Result<Page, Error> {
    let known = status.fresh();
    let Some(job) = known.jobs.get(name) else {
        return match &known.failure {
            Some(_) => Err(Error::new(Kind::Unavailable, format!("nothing is known of {name} yet"))),
            None => Err(Error::new(Kind::NotFound, format!("there is no job {name}"))),
        };
    };
    let newest: Vec<&Checkpoint> = job.listing.visible().rev().take(SHOWN).collect();
    let most = newest.iter().map(|c| c.manifest.logical_bytes.max(c.manifest.new_bytes)).max().unwrap_or_default();
    let bytes: Vec<Point> = newest
        .iter()
        .rev()
        .map(|c| Point {
            name: c.number.to_string(),
            bar: vec![("sent", c.manifest.new_bytes as f64)],
            line: Some(c.manifest.logical_bytes as f64),
            says: format!(
                "{}: holds {}, sent {}",
                c.number,
                Size(c.manifest.logical_bytes),
                Size(c.manifest.new_bytes)
            ),
        })
        .collect();
    let times: Vec<Point> = newest
        .iter()
        .rev()
        .map(|c| Point {
            name: c.number.to_string(),
            bar: phases_of(c).into_iter().map(|(_, class, ms)| (class, ms as f64)).collect(),
            line: None,
            says: said(c),
        })
        .collect();
    let there: BTreeSet<&str> = newest.iter().flat_map(|c| phases_of(c)).map(|(_, class, _)| class).collect();
    let content = html! {
        (freshness(&known))
        @if newest.is_empty() {
            p { "No checkpoint of it is completed and in the view." }
        } @else {
            h2 { "Bytes" }
            p { span.key-held { "Line" } ": what a checkpoint holds. " span.key-sent { "Bars" } ": what was sent for it." }
            (chart("What checkpoints hold and what was sent for each", &bytes, |_| Size(most).to_string()))
            h2 { "Time from begin to end" }
            p {
                @for (name, class) in coloured().filter(|(_, class)| there.contains(class)) {
                    svg.swatch viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) width="10" height="10" {} }
                    " " (phases::words(name)) " "
                }
                "(of each phase its slowest subtask)"
            }
            (chart("How long each checkpoint took, by phase", &times, |top| took(Duration::from_secs_f64(top / 1000.0))))
        }
        (failures(job))
        @if !newest.is_empty() { (table(job, &newest)) }
    };
    Ok(Page { here: "", title: format!("Job {name}"), content })
}

/// What the phases that are known leave of a checkpoint's time.
const REST: &str = "rest";

/// Phases with the classes of their colours, in the order that they come in.
fn coloured() -> impl Iterator<Item = (&'static str, &'static str)> {
    let classes = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"];
    phases::STORED.into_iter().chain([REST]).zip(classes)
}

/// How long a checkpoint's phases took: name, class, milliseconds. Those of 0 are left out.
fn phases_of(c: &Checkpoint) -> Vec<(&'static str, &'static str, u64)> {
    let known: Vec<(&str, u64)> = c.manifest.phases.iter().collect();
    // Looking at the directory comes before the checkpoint begins.
    let within =
        known.iter().filter(|(name, _)| *name != phases::SCAN).fold(0u64, |sum, (_, ms)| sum.saturating_add(*ms));
    let all = u64::try_from(duration(c).as_millis()).unwrap_or(u64::MAX);
    let of = |wanted: &str| match wanted {
        REST => all.saturating_sub(within),
        _ => known.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, ms)| *ms),
    };
    coloured().map(|(name, class)| (name, class, of(name))).filter(|(_, _, ms)| *ms > 0).collect()
}

/// A checkpoint's time in words.
fn said(c: &Checkpoint) -> String {
    let phases = phases_of(c);
    let parts: Vec<String> = phases
        .iter()
        .map(|(name, _, ms)| format!("{} {}", phases::words(name), took(Duration::from_millis(*ms))))
        .collect();
    let colon = if parts.is_empty() { "" } else { ": " };
    format!("{}: {}{colon}{}", c.number, took(duration(c)), parts.join(", "))
}

/// What was given up, what is under way, what cannot be read.
fn failures(job: &Job) -> Markup {
    let listing = &job.listing;
    html! {
        @if !listing.aborted.is_empty() || !listing.unreadable.is_empty() || !listing.open.is_empty() {
            h2 { "Not completed" }
            ul {
                @for (n, reason) in &listing.aborted {
                    li { (n) " was given up: " (plain(reason)) }
                }
                @for (n, why) in &listing.unreadable {
                    li.bad { (n) " cannot be read: " (plain(why)) ". " code { "ckptfs verify" } " says more." }
                }
                @for n in &listing.open {
                    li { (n) " is under way, or its writer is gone." }
                }
            }
        }
    }
}

fn table(job: &Job, newest: &[&Checkpoint]) -> Markup {
    html! {
        h2 { "Checkpoints" }
        div.wide {
            table {
                caption { "The newest " (newest.len()) " of " (job.visible) " in the view" }
                thead {
                    tr {
                        th scope="col" { "Checkpoint" }
                        th scope="col" { "Kind" }
                        th scope="col" { "Completed (UTC)" }
                        th.n scope="col" { "Took" }
                        th.n scope="col" { "Subtasks" }
                        th.n scope="col" { "Files" }
                        th.n scope="col" { "Holds" }
                        th.n scope="col" { "Sent" }
                    }
                }
                tbody {
                    @for c in newest {
                        tr {
                            th scope="row" { (checkpoint_link(&c.job, c.number, &c.number.to_string())) }
                            td { @if c.manifest.kind == CheckpointKind::Savepoint { "savepoint" } @else { "checkpoint" } }
                            td { time title=(ago(c.manifest.completed_ms)) { (Utc(c.manifest.completed_ms)) } }
                            td.n { (took(duration(c))) }
                            td.n { (c.manifest.subtasks.len()) }
                            td.n { (c.manifest.files) }
                            td.n { (size(c.manifest.logical_bytes)) }
                            td.n { (size(c.manifest.new_bytes)) }
                        }
                    }
                }
            }
        }
    }
}
