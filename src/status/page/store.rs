//! `/store`: what all checkpoints take together, what a sweep would free, and who keeps what.

use maud::{Markup, html};

use super::{Page, checkpoint_link, freshness, plain, size};
use crate::error::Error;
use crate::format::records::PinHolder;
use crate::status::Status;
use crate::types::Utc;

pub(super) fn page(status: &Status) -> Result<Page, Error> {
    let known = status.fresh();
    let sharing = status.sharing()?;
    let logical = sharing.usage.checkpoints.values().fold(0_u64, |sum, u| sum.saturating_add(u.logical));
    let content = html! {
        (freshness(&known))
        dl {
            dt { "Store" } dd { (plain(status.session().store.url())) }
            dt { "Id" } dd { (status.session().store_id) }
            dt { "Checkpoints" } dd { (sharing.usage.checkpoints.len()) " in " (known.jobs.len()) @if known.jobs.len() == 1 { " job" } @else { " jobs" } }
            dt { "They hold" } dd { (size(logical)) " if each had its own files" }
            dt { "They take" } dd { (size(sharing.usage.total)) ", each blob counted once" }
        }
        (sweep(status))
        (pins(status))
        p { "Whole-store figures are at most half a minute old." }
    };
    Ok(Page { here: "/store", title: "Store".to_owned(), content })
}

fn sweep(status: &Status) -> Markup {
    html! {
        h2 { "What a sweep would free" }
        @match status.sweep() {
            Ok(plan) => {
                p { (size(plan.doomed_bytes())) " in " (plan.doomed.len()) " blobs; " (size(plan.kept_bytes)) " in " (plan.kept_blobs) " blobs are needed." }
                @if !plan.foreign.is_empty() {
                    p.bad { (size(plan.foreign_bytes())) " in " (plan.foreign.len()) " blobs of which no record knows whose they are: " code { "ckptfs gc" } " says more." }
                }
                @for held in &plan.held {
                    p { (checkpoint_link(&held.at.0, held.at.1, &format!("{}/{}", held.at.0, held.at.1))) " is expired and kept by " (held.pins.len()) " pins." }
                }
                @if !plan.doomed.is_empty() { p { code { "ckptfs gc --delete" } " frees it." } }
            }
            Err(e) => { p.bad { "It cannot be told: " (plain(&format!("{e:#}"))) } }
        }
    }
}

fn pins(status: &Status) -> Markup {
    let pins = match status.session().catalog.pins(None) {
        Ok(pins) => pins,
        Err(e) => return html! { h2 { "Pins" } p.bad { "They cannot be listed: " (plain(&e.to_string())) } },
    };
    html! {
        h2 { "Pins" }
        @if pins.is_empty() { p { "Nobody holds anything beyond its life." } } @else {
            div.wide {
                table {
                    caption { "Who keeps which checkpoint" }
                    thead {
                        tr {
                            th scope="col" { "Checkpoint" }
                            th scope="col" { "Held by" }
                            th scope="col" { "Since (UTC)" }
                        }
                    }
                    tbody {
                        @for (pin, record) in &pins {
                            tr {
                                th scope="row" { (checkpoint_link(&pin.job, pin.number, &format!("{}/{}", pin.job, pin.number))) }
                                td { (plain(&record.as_ref().map(|r| &r.holder).map_or_else(|| PinHolder::UNREADABLE.to_owned(), ToString::to_string))) }
                                td { @if let Some(record) = record { (Utc(record.pinned_ms)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
