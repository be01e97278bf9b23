//! Pages for people: one small page per view, made whole by the server, without a script.
//!
//! Whatever comes from a store or a disk (names of jobs, operators and files, reasons, notes) goes through `maud`, which escapes it, and
//! through [`plain`], which takes from it what could turn a line around.

mod chart;
mod checkpoint;
mod job;
mod jobs;
mod mount;
mod store;

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::Status;
use super::known::Known;
use crate::error::{Error, Kind};
use crate::types::{Age, CheckpointNumber, Name, Size, Utc, is_hidden, now_ms};

/// What goes back to a client.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) kind: &'static str,
    pub(super) body: String,
}

impl Answer {
    /// A line of text.
    pub(super) fn words(status: StatusCode, text: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }
}

/// A page: its place in the navigation, its title and what is on it.
struct Page {
    here: &'static str,
    title: String,
    content: Markup,
}

/// The answer to a path of the pages.
pub(super) fn answer(status: &Status, path: &str) -> Answer {
    let parts: Vec<_> = path.trim_matches('/').split('/').map(|p| percent_decode_str(p).decode_utf8_lossy()).collect();
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let page = match parts.as_slice() {
        ["style.css"] => {
            let (kind, body) = ("text/css; charset=utf-8", include_str!("style.css").to_owned());
            return Answer { status: StatusCode::OK, kind, body };
        }
        ["icon.svg"] => {
            let (kind, body) = ("image/svg+xml", include_str!("icon.svg").to_owned());
            return Answer { status: StatusCode::OK, kind, body };
        }
        [""] => Ok(jobs::page(status)),
        ["store"] => store::page(status),
        ["mount"] => mount::page(status),
        ["job", job] => named(job).and_then(|job| job::page(status, &job)),
        ["job", job, number] => named(job).and_then(|job| checkpoint::page(status, &job, numbered(number)?)),
        _ => Err(Error::new(Kind::NotFound, "there is no such page")),
    };
    let (code, page) = match page {
        Ok(page) => (StatusCode::OK, page),
        Err(e) => failed(&e),
    };
    Answer { status: code, kind: "text/html; charset=utf-8", body: whole(status, &page).into_string() }
}

fn named(text: &str) -> Result<Name, Error> {
    Name::parse(text).map_err(|_| Error::new(Kind::NotFound, "no job can have that name"))
}

fn numbered(text: &str) -> Result<CheckpointNumber, Error> {
    text.parse().map_err(|_| Error::new(Kind::NotFound, "a checkpoint is named chk- and its number"))
}

fn failed(e: &Error) -> (StatusCode, Page) {
    let code = match e.kind() {
        Kind::NotFound | Kind::Invalid => StatusCode::NOT_FOUND,
        Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let title = if code == StatusCode::NOT_FOUND { "Not found" } else { "This cannot be shown" };
    let content = html! { p.bad { (plain(&format!("{e:#}"))) } };
    (code, Page { here: "", title: title.to_owned(), content })
}

fn whole(status: &Status, page: &Page) -> Markup {
    let mut views = vec![("/", "Jobs"), ("/store", "Store")];
    if status.mount().is_some() {
        views.push(("/mount", "Mount"));
    }
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (plain(&page.title)) " – ckptfs" }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/style.css";
            }
            body {
                nav aria-label="Views" {
                    ul {
                        @for (to, name) in views {
                            li { a href=(to) aria-current=[(to == page.here).then_some("page")] { (name) } }
                        }
                    }
                }
                main {
                    h1 { (plain(&page.title)) }
                    @for told in status.known().troubles() { p.bad { (plain(&told.says)) } }
                    (page.content)
                }
                footer {
                    p {
                        "ckptfs " (env!("CARGO_PKG_VERSION")) ", " (plain(status.session().store.url()))
                        ", since " (Utc(since_1970(status.begun()))) " UTC"
                    }
                }
            }
        }
    }
}

/// Text without what could move or turn what stands around it.
fn plain(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

fn since_1970(at: SystemTime) -> u64 {
    let elapsed = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// A job's page.
fn job_path(job: &Name) -> String {
    format!("/job/{}", utf8_percent_encode(job.as_str(), NON_ALPHANUMERIC))
}

/// A link to a checkpoint.
fn checkpoint_link(job: &Name, number: CheckpointNumber, text: &str) -> Markup {
    html! { a href=(format!("{}/{number}", job_path(job))) { (plain(text)) } }
}

/// How long ago, in the largest unit that fits.
fn ago(ms: u64) -> String {
    format!("{} ago", Age(now_ms().saturating_sub(ms)))
}

fn took(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms < 10_000 { format!("{ms} ms") } else { format!("{:.1} s", duration.as_secs_f64()) }
}

/// What the reader must know of where the figures come from.
fn freshness(known: &Known) -> Markup {
    let listed = known.listed.map(since_1970);
    html! {
        @if known.failure.is_some() {
            p.bad {
                @match listed {
                    Some(ms) => { "What you see is from " (Utc(ms)) " UTC." }
                    None => "Nothing is known of it yet."
                }
            }
        } @else if listed.is_none() {
            p { "The store is being listed for the first time: look again in a moment." }
        }
    }
}

/// A size in a unit that people read, and exactly for those who point at it.
fn size(bytes: u64) -> Markup {
    html! { data value=(bytes) title=(format!("{bytes} bytes")) { (Size(bytes)) } }
}
