//! `/mount`: how the mount of this process does: what is local, the cache, requests that took long.

use std::time::Duration;

use maud::{Markup, html};

use super::{Page, plain, since_1970, size, took};
use crate::error::{Error, Kind};
use crate::metrics::{self, Operation, SLOW};
use crate::status::Status;
use crate::types::{Size, Utc};

pub(super) fn page(status: &Status) -> Result<Page, Error> {
    let mount = status.mount().ok_or_else(|| Error::new(Kind::NotFound, "this process serves no mount"))?;
    let counters = &mount.counters;
    let content = html! {
        @if let Some(why) = status.illness() { p.bad { (plain(&why)) } }
        dl {
            dt { "Mounted at" } dd { (plain(&mount.point.display().to_string())) }
            dt { "Since" } dd { (Utc(since_1970(status.begun()))) " UTC" }
            dt { "Waiting now" } dd { (counters.waiting.get()) " requests" }
            dt { "Given up at their deadline" } dd { (counters.deadlines.get()) }
        }
        (opens(counters))
        (cache(status))
        (requests(counters))
        (slow(counters))
    };
    Ok(Page { here: "/mount", title: "Mount".to_owned(), content })
}

fn opens(counters: &metrics::MountCounters) -> Markup {
    let rows = [
        ("read by the kernel itself", counters.opens_passthrough.get()),
        ("not all local: fetched as they are read", counters.opens_lazy.get()),
        ("local, and read by the daemon", counters.opens_fallback.get()),
        ("made by the daemon (manifests)", counters.opens_text.get()),
    ];
    html! {
        h2 { "Files opened" }
        table {
            caption { "Since the mount began" }
            thead { tr { th scope="col" { "How" } th.n scope="col" { "Files" } } }
            tbody { @for (how, n) in rows { tr { th scope="row" { (how) } td.n { (n) } } } }
        }
        @if counters.passthrough_refused.get() > 0 {
            p.bad { "The kernel did not take files to read itself: " code { "ckptfs doctor" } " says why." }
        }
    }
}

fn cache(status: &Status) -> Markup {
    let cache = &status.session().cache;
    let (counters, limits, room) = (cache.counters(), cache.limits(), status.room());
    html! {
        h2 { "Cache" }
        dl {
            dt { "Directory" } dd { (plain(&cache.path().display().to_string())) }
            @if let Some(room) = room {
                dt { "Local" } dd { (size(room.bytes)) " in " (room.files) " files" }
                dt { "Free on its disk" } dd { (size(room.free)) }
            }
            dt { "May take" } dd { (limits.size.map_or_else(|| "as much as there is".to_owned(), |n| Size(n).to_string())) }
            dt { "Found local" } dd { (counters.hits.get()) " files" }
            dt { "Fetched" } dd { (counters.fetched_files.get()) " files, " (size(counters.fetched_bytes.get())) }
            dt { "Evicted" } dd { (counters.evicted_files.get()) " files" }
            dt { "Not what they should be" } dd { (counters.discarded.get()) " local files and " (counters.wrong_fetched.get()) " fetched pieces, thrown away and not served" }
        }
    }
}

fn requests(counters: &metrics::MountCounters) -> Markup {
    html! {
        h2 { "Requests of the kernel" }
        table {
            caption { "Since the mount began" }
            thead { tr { th scope="col" { "Request" } th.n scope="col" { "Count" } th.n scope="col" { "Mean" } } }
            tbody {
                @for operation in Operation::ALL {
                    @let times = counters.of(operation).get();
                    tr {
                        th scope="row" { (operation.name()) }
                        td.n { (times.count) }
                        td.n { @if times.count > 0 { (format!("{:.3} ms", times.sum * 1000.0 / times.count as f64)) } }
                    }
                }
            }
        }
    }
}

fn slow(counters: &metrics::MountCounters) -> Markup {
    let slow = counters.slow();
    html! {
        h2 { "Slow requests" }
        @if slow.is_empty() {
            p { "None took " (took(Duration::from_secs(SLOW.as_secs()))) " or longer." }
        } @else {
            table {
                caption { "The last that took " (took(SLOW)) " or longer" }
                thead { tr { th scope="col" { "Answered (UTC)" } th scope="col" { "Request" } th.n scope="col" { "Inode" } th.n scope="col" { "Took" } } }
                tbody {
                    @for s in &slow {
                        tr { td { (Utc(since_1970(s.at))) } th scope="row" { (s.operation.name()) } td.n { (s.ino) } td.n { (took(s.took)) } }
                    }
                }
            }
        }
    }
}
