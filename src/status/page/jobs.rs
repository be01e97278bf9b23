//! `/`: the jobs of the store, and how each is.

use maud::html;

use super::{Page, ago, freshness, job_path, plain, size, took};
use crate::status::Status;

pub(super) fn page(status: &Status) -> Page {
    let known = status.fresh();
    let content = html! {
        (freshness(&known))
        @if known.jobs.is_empty() && known.listed.is_some() {
            p { "The store has no job yet. " code { "ckptfs snapshot --job NAME DIR" } " makes the first checkpoint." }
        }
        @if !known.jobs.is_empty() {
            div.wide {
                table {
                    caption { "Jobs with a decided checkpoint" }
                    thead {
                        tr {
                            th scope="col" { "Job" }
                            th.n scope="col" { "Checkpoints" }
                            th scope="col" { "Newest" }
                            th scope="col" { "Completed" }
                            th.n scope="col" { "Took" }
                            th.n scope="col" { "Holds" }
                            th.n scope="col" { "Sent" }
                            th scope="col" { "Remarks" }
                        }
                    }
                    tbody {
                        @for job in known.jobs.values() {
                            tr {
                                th scope="row" { a href=(job_path(&job.listing.job)) { (plain(job.listing.job.as_str())) } }
                                td.n { (job.visible) }
                                @match job.latest() {
                                    Some(c) => {
                                        td { (super::checkpoint_link(&c.job, c.number, &c.number.to_string())) }
                                        td { (ago(c.manifest.completed_ms)) }
                                        td.n { (took(super::job::duration(c))) }
                                        td.n { (size(c.manifest.logical_bytes)) }
                                        td.n { (size(c.manifest.new_bytes)) }
                                    }
                                    None => { td colspan="5" { "none is completed" } }
                                }
                                td { (super::job::remarks(job)) }
                            }
                        }
                    }
                }
            }
        }
    };
    Page { here: "/", title: "Jobs".to_owned(), content }
}
