//! `/job/JOB/chk-N`: what one checkpoint consists of, and with which others it shares its files.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::job::duration;
use super::{Page, ago, checkpoint_link, job_path, plain, size, took};
use crate::error::Error;
use crate::format::{CheckpointKind, TaskManifest, phases};
use crate::lifecycle::Checkpoint;
use crate::restore::inspect;
use crate::status::{Sharing, Status};
use crate::types::{CheckpointNumber, Name, Utc};

/// How many files the page shows: the largest.
const FILES: usize = 25;

/// How many checkpoints that share a file are named.
const NAMED: usize = 6;

pub(super) fn page(status: &Status, job: &Name, number: CheckpointNumber) -> Result<Page, Error> {
    // What is listed is known without asking; a hidden or a held one, or one that is new, is not.
    let listed = status.known().jobs.get(job).and_then(|job| job.listing.checkpoints.get(&number).cloned());
    let checkpoint = match listed.filter(|c| !c.hidden && !c.expired) {
        Some(checkpoint) => checkpoint,
        None => status.session().catalog.checkpoint(job, number)?,
    };
    let manifests = inspect::manifests(status.session(), &checkpoint)?;
    let sharing = status.sharing()?;
    let own = (job.clone(), number);
    let usage = sharing.usage.checkpoints.get(&own).copied();
    let m = &checkpoint.manifest;
    let content = html! {
        dl {
            dt { "Job" } dd { a href=(job_path(job)) { (plain(job.as_str())) } }
            dt { "Kind" } dd { @if m.kind == CheckpointKind::Savepoint { "savepoint" } @else { "checkpoint" } }
            dt { "Completed" } dd { (Utc(m.completed_ms)) " UTC, " (ago(m.completed_ms)) ", " (took(duration(&checkpoint))) " after it was begun" }
            dt { "Holds" } dd { (size(m.logical_bytes)) " in " (m.files) " files" }
            dt { "Sent" } dd { (size(m.new_bytes)) }
            @if let Some(usage) = usage {
                dt { "Its alone" } dd { (size(usage.unique)) ", which its end would free" }
            }
            dt { "Bases" } dd {
                @if m.bases.is_empty() { "none" }
                @for base in &m.bases { (checkpoint_link(&base.job, base.number, &format!("{}/{}", base.job, base.number))) " " }
            }
            @for (key, value) in m.labels.iter() {
                dt { "Label" } dd { (plain(&format!("{key}={value}"))) }
            }
            @if checkpoint.hidden { dt { "View" } dd { "hidden: found by its name only" } }
            @if checkpoint.expired { dt { "Life" } dd { "expired, and kept by a pin" } }
        }
        (subtasks(&checkpoint, &manifests))
        (times(&checkpoint, &manifests))
        (files(&checkpoint, &manifests, &sharing))
        (shared(&own, &sharing))
    };
    Ok(Page { here: "", title: format!("{job}/{number}"), content })
}

fn subtasks(checkpoint: &Checkpoint, manifests: &[std::sync::Arc<TaskManifest>]) -> Markup {
    html! {
        h2 { "Subtasks" }
        div.wide {
            table {
                caption { "Operators and their subtasks" }
                thead {
                    tr {
                        th scope="col" { "Operator" }
                        th.n scope="col" { "Subtask" }
                        th scope="col" { "Key groups" }
                        th.n scope="col" { "Files" }
                        th.n scope="col" { "Holds" }
                        th.n scope="col" { "Sent" }
                    }
                }
                tbody {
                    @for (entry, manifest) in checkpoint.manifest.subtasks.iter().zip(manifests) {
                        tr {
                            th scope="row" { (plain(&entry.display_name)) }
                            td.n { (entry.subtask) }
                            td { @match manifest.key_groups { Some(range) => (range), None => "–" } }
                            td.n { (entry.files) }
                            td.n { (size(entry.logical_bytes)) }
                            td.n { (size(entry.new_bytes)) }
                        }
                    }
                }
            }
        }
    }
}

/// How long each subtask's phases took, where it is known.
fn times(checkpoint: &Checkpoint, manifests: &[std::sync::Arc<TaskManifest>]) -> Markup {
    let rows: Vec<_> = manifests.iter().map(|manifest| phases::of(&checkpoint.manifest, manifest)).collect();
    let columns = phases::columns(&rows);
    html! {
        @if !columns.is_empty() {
            h2 { "Time by phase" }
            div.wide {
                table {
                    caption { "What each subtask's snapshot spent its time with, by its own clock" }
                    thead {
                        tr {
                            th scope="col" { "Operator" }
                            th.n scope="col" { "Subtask" }
                            @for name in &columns { th.n scope="col" { (phases::words(name)) } }
                        }
                    }
                    tbody {
                        @for (entry, phases) in checkpoint.manifest.subtasks.iter().zip(&rows) {
                            tr {
                                th scope="row" { (plain(&entry.display_name)) }
                                td.n { (entry.subtask) }
                                @for name in &columns {
                                    td.n {
                                        @match phases.iter().find(|(known, _)| known == name) {
                                            Some((_, ms)) => data.ms value=(ms) { (took(Duration::from_millis(*ms))) },
                                            None => "–",
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn files(checkpoint: &Checkpoint, manifests: &[std::sync::Arc<TaskManifest>], sharing: &Sharing) -> Markup {
    let own = (checkpoint.job.clone(), checkpoint.number);
    let all = checkpoint.manifest.subtasks.iter().zip(manifests);
    let mut all: Vec<_> = all.flat_map(|(entry, m)| m.files.iter().map(move |f| (entry, f))).collect();
    all.sort_by_key(|(_, f)| std::cmp::Reverse(f.size));
    let total = all.len();
    all.truncate(FILES);
    html! {
        h2 { "Largest files" }
        div.wide {
            table {
                caption { "The largest " (all.len()) " of " (total) " files" }
                thead {
                    tr {
                        th scope="col" { "File" }
                        th.n scope="col" { "Size" }
                        th scope="col" { "Column family" }
                        th.n scope="col" { "Level" }
                        th scope="col" { "Also in" }
                    }
                }
                tbody {
                    @for (entry, file) in all {
                        tr {
                            th.path scope="row" { (plain(&format!("{}/{}/{}", entry.operator, entry.subtask, file.path))) }
                            td.n { (size(file.size)) }
                            td { @if let Some(sst) = &file.sst { (plain(&sst.column_family)) } }
                            td.n { @if let Some(sst) = &file.sst { (sst.level) } }
                            td { (others(sharing.files.get(&file.digest).into_iter().flatten().filter(|at| **at != own))) }
                        }
                    }
                }
            }
        }
    }
}

fn others<'a>(all: impl Iterator<Item = &'a (Name, CheckpointNumber)>) -> Markup {
    let all: Vec<_> = all.collect();
    html! {
        @if all.is_empty() { "no other" }
        // The nearest ones say most; they were made last.
        @for (job, number) in all.iter().rev().take(NAMED) {
            (checkpoint_link(job, *number, &format!("{job}/{number}"))) " "
        }
        @if all.len() > NAMED { "and " (all.len() - NAMED) " more" }
    }
}

/// How much it has in common with which others.
fn shared(own: &(Name, CheckpointNumber), sharing: &Sharing) -> Markup {
    let mut with: BTreeMap<&(Name, CheckpointNumber), (u64, u64)> = BTreeMap::new();
    for (digest, size) in sharing.of.get(own).into_iter().flatten() {
        for at in sharing.files.get(digest).into_iter().flatten().filter(|at| *at != own) {
            let (files, bytes) = with.entry(at).or_default();
            (*files, *bytes) = (files.saturating_add(1), bytes.saturating_add(*size));
        }
    }
    let mut with: Vec<_> = with.into_iter().collect();
    with.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
    let total = with.len();
    with.truncate(FILES);
    html! {
        @if !with.is_empty() {
            h2 { "Shared with" }
            div.wide {
                table {
                    caption { "The " (with.len()) " of " (total) " checkpoints that have most in common with it" }
                    thead {
                        tr {
                            th scope="col" { "Checkpoint" }
                            th.n scope="col" { "Files" }
                            th.n scope="col" { "Bytes" }
                        }
                    }
                    tbody {
                        @for ((job, number), (files, bytes)) in with {
                            tr {
                                th scope="row" { (checkpoint_link(job, *number, &format!("{job}/{number}"))) }
                                td.n { (files) }
                                td.n { (size(bytes)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
