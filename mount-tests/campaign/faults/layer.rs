//! What goes wrong, and what the client is told: between the connection and the store behind it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::bucket::{Bucket, escape, texts};
use super::cells::{Ask, KINDS, Kind, Matrix, impossible};
use super::http::{Answer, Request};
use super::random::{below, chance, pick};
use super::upstream::Upstream;

/// Bodies that are kept to be given to another.
const RECENT: usize = 64;

/// Every fault of a kind at requests that name `token`, so many times.
struct Aim {
    token: String,
    ask: Ask,
    kind: Kind,
    times: u32,
}

/// How an answer leaves.
#[derive(Clone, Copy)]
pub enum Delivery {
    Whole,
    /// So many bytes of the body, then the connection ends.
    Cut(usize),
    /// In pieces, over that long.
    Drip(Duration),
    /// The connection ends without an answer.
    Close,
    /// Nothing comes, until the client goes.
    Hang,
}

/// The server's state.
pub struct Layer {
    pub memory: Bucket,
    /// A real server behind all buckets whose name is not ours, if there is one.
    pub upstream: Option<Upstream>,
    pub matrix: Matrix,
    /// Faults at requests that went to the real server.
    pub upstream_faults: AtomicU64,
    pub requests: AtomicU64,
    /// Faulted requests out of a thousand, where none is aimed at.
    pub rate: AtomicU64,
    aims: Mutex<Vec<Aim>>,
    /// Deletes that are still to come.
    later: Mutex<Vec<(Instant, Request)>>,
    recent: Mutex<Vec<(Ask, String, Answer)>>,
    pub ended: AtomicBool,
    /// The last few faults, for messages.
    pub trace: Mutex<VecDeque<String>>,
}

/// The bucket in memory.
pub const MEMORY: &str = "memory";

impl Layer {
    pub fn new(upstream: Option<Upstream>) -> Self {
        Self {
            memory: Bucket::default(),
            upstream,
            matrix: Matrix::default(),
            upstream_faults: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            aims: Mutex::default(),
            later: Mutex::default(),
            recent: Mutex::default(),
            ended: AtomicBool::new(false),
            trace: Mutex::default(),
        }
    }

    /// Lets requests that name the token fail.
    pub fn aim(&self, token: &str, ask: Ask, kind: Kind, times: u32) {
        let aim = Aim { token: token.to_owned(), ask, kind, times };
        self.aims.lock().unwrap_or_else(PoisonError::into_inner).push(aim);
    }

    /// Ends what was aimed at the token. Says how many times it did not come to it.
    pub fn unaim(&self, token: &str) -> u32 {
        let mut aims = self.aims.lock().unwrap_or_else(PoisonError::into_inner);
        let left = aims.iter().filter(|a| a.token == token).map(|a| a.times).sum();
        aims.retain(|a| a.token != token);
        left
    }

    /// The fault for a request, if it is to have one.
    pub fn choose(&self, ask: Ask, request: &Request) -> Option<Kind> {
        let body = if ask == Ask::Bulk { String::from_utf8_lossy(&request.body).into_owned() } else { String::new() };
        let mut aims = self.aims.lock().unwrap_or_else(PoisonError::into_inner);
        let names = |aim: &Aim| request.target.contains(&aim.token) || body.contains(&aim.token);
        let mut aimed = aims.iter_mut().filter(|a| names(a)).peekable();
        if aimed.peek().is_some() {
            let aim = aimed.find(|a| a.ask == ask && a.times > 0)?;
            aim.times -= 1;
            return Some(aim.kind);
        }
        if below(1000) >= self.rate.load(Ordering::Relaxed) {
            return None;
        }
        if chance(50) {
            return Some(self.matrix.rarest(ask).0);
        }
        let there: Vec<Kind> = KINDS.into_iter().filter(|k| impossible(*k, ask).is_none()).collect();
        pick(&there).copied()
    }

    fn hit(&self, kind: Kind, ask: Ask, request: &Request) {
        self.matrix.hit(kind, ask);
        if request.bucket != MEMORY {
            self.upstream_faults.fetch_add(1, Ordering::Relaxed);
        }
        let mut trace = self.trace.lock().unwrap_or_else(PoisonError::into_inner);
        if trace.len() >= 200 {
            trace.pop_front();
        }
        let body = if ask == Ask::Bulk { String::from_utf8_lossy(&request.body).into_owned() } else { String::new() };
        trace.push_back(format!("{kind:?} at {ask:?} {} {body}", request.target));
    }

    /// A request that broke off before it was whole.
    pub fn cut(&self, ask: Ask, request: &Request) {
        self.hit(Kind::Truncated, ask, request);
    }

    /// What the store itself says.
    pub fn handle(&self, request: &Request) -> Answer {
        match &self.upstream {
            Some(upstream) if request.bucket != MEMORY => upstream.handle(request),
            _ => self.memory.handle(request),
        }
    }

    fn later(&self, request: &Request) {
        let due = Instant::now() + Duration::from_millis(20 + below(400));
        self.later.lock().unwrap_or_else(PoisonError::into_inner).push((due, request.clone()));
    }

    /// Does what is due of what was put off. Says whether nothing is left.
    pub fn catch_up(&self) -> bool {
        let now = Instant::now();
        let mut later = self.later.lock().unwrap_or_else(PoisonError::into_inner);
        let (due, rest): (Vec<_>, Vec<_>) = later.drain(..).partition(|(due, _)| *due <= now);
        *later = rest;
        let done = later.is_empty();
        drop(later);
        due.iter().for_each(|(_, request)| drop(self.handle(request)));
        done
    }

    fn remember(&self, ask: Ask, request: &Request, answer: &Answer) {
        let keeps = matches!(
            ask,
            Ask::GetWhole | Ask::GetRange | Ask::Head | Ask::List | Ask::Begin | Ask::Complete | Ask::Bulk
        );
        let small = answer.body.len() < 1 << 20;
        let empty = ask == Ask::List && !answer.body.windows(10).any(|w| w == b"<Contents>");
        if !keeps || !small || empty || !answer.is_success() || !chance(25) {
            return;
        }
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= RECENT * 7 {
            let at = below(recent.len() as u64) as usize;
            recent.swap_remove(at);
        }
        recent.push((ask, request.target.clone(), answer.clone()));
    }

    /// Another's answer, of the same length where there is one.
    fn other(&self, ask: Ask, request: &Request, answer: &Answer) -> Option<Answer> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        // A list of the same place at another time would be a store that is not consistent, which no client can tell.
        let place = request.query("prefix");
        let is_other = |target: &str, given: &Answer| {
            let elsewhere = match (ask, place) {
                (Ask::List, Some(place)) => {
                    let text = String::from_utf8_lossy(&given.body).into_owned();
                    texts(&text, "Prefix").first() != Some(&escape(place).as_str())
                }
                (Ask::Bulk, _) => true,
                // Nor can one tell another store's record of the same name.
                _ => in_bucket(target) != in_bucket(&request.target),
            };
            elsewhere && (given.body != answer.body || ask == Ask::Head)
        };
        let fits: Vec<_> = recent.iter().filter(|(a, target, given)| *a == ask && is_other(target, given)).collect();
        let alike: Vec<_> =
            fits.iter().filter(|(.., g)| g.body.len() == answer.body.len() && ask != Ask::Head).collect();
        match pick(&alike) {
            Some((.., given)) => Some(given.clone()),
            None => pick(&fits).map(|(.., given)| given.clone()),
        }
    }

    /// Does a request with this fault. `None`: it could not be done to it, and the answer is the true one.
    pub fn act(&self, kind: Option<Kind>, ask: Ask, request: &Request) -> (Answer, Delivery) {
        let Some(kind) = kind else {
            let answer = self.handle(request);
            self.remember(ask, request, &answer);
            return (answer, Delivery::Whole);
        };
        let told = self.wrong(kind, ask, request);
        match told {
            Ok(told) => {
                self.hit(kind, ask, request);
                told
            }
            Err(answer) => (answer, Delivery::Whole),
        }
    }

    /// The faulted answer, or the true one where the fault cannot be.
    fn wrong(&self, kind: Kind, ask: Ask, request: &Request) -> Result<(Answer, Delivery), Answer> {
        let whole = |answer| Ok((answer, Delivery::Whole));
        match kind {
            Kind::Before => whole(busy()),
            Kind::After => {
                self.handle(request);
                whole(busy())
            }
            Kind::Lost => {
                self.handle(request);
                Ok((Answer::default(), if chance(70) { Delivery::Close } else { Delivery::Hang }))
            }
            Kind::Conflict => whole(Answer::error(
                409,
                if ask == Ask::Create { "ConditionalRequestConflict" } else { "OperationAborted" },
            )),
            Kind::OwnSuccess => {
                let answer = self.handle(request);
                if answer.is_success() { whole(Answer::error(412, "PreconditionFailed")) } else { Err(answer) }
            }
            Kind::Html => whole(page(ask)),
            Kind::Twice => {
                let answer = self.handle(request);
                self.later(request);
                whole(answer)
            }
            Kind::Late => {
                self.later(request);
                whole(as_if_deleted(ask, request))
            }
            Kind::Hang => {
                if chance(50) {
                    self.handle(request);
                }
                Ok((Answer::default(), Delivery::Hang))
            }
            Kind::Slow => {
                let answer = self.handle(request);
                Ok((answer, Delivery::Drip(Duration::from_millis(40 + below(700)))))
            }
            // The request's own body, which was signed, did not come as it was sent.
            Kind::Flipped if matches!(ask, Ask::Create | Ask::Put | Ask::Part) => {
                whole(Answer::error(400, "XAmzContentSHA256Mismatch"))
            }
            Kind::Truncated | Kind::Flipped | Kind::Swapped | Kind::WrongLength | Kind::Page => {
                let answer = self.handle(request);
                self.remember(ask, request, &answer);
                if !answer.is_success() || (answer.body.is_empty() && ask != Ask::Head) {
                    return Err(answer);
                }
                self.spoiled(kind, ask, request, answer)
            }
        }
    }

    fn spoiled(&self, kind: Kind, ask: Ask, request: &Request, answer: Answer) -> Result<(Answer, Delivery), Answer> {
        let length = answer.body.len();
        match kind {
            Kind::Truncated => {
                let cut = below(length as u64) as usize;
                Ok((answer, Delivery::Cut(cut)))
            }
            Kind::Flipped => match flipped(ask, &answer.body) {
                Some(body) => Ok((Answer { body, ..answer }, Delivery::Whole)),
                None => Err(answer),
            },
            Kind::Swapped => match self.other(ask, request, &answer) {
                Some(other) => {
                    let mut told = Answer { body: other.body, length: other.length, ..answer };
                    told.set("x-swapped", "yes".to_owned());
                    Ok((told, Delivery::Whole))
                }
                None => Err(answer),
            },
            Kind::WrongLength => Ok(wrong_length(ask, answer)),
            Kind::Page => page_error(request, answer),
            _ => Err(answer),
        }
    }
}

/// A target without its bucket.
fn in_bucket(target: &str) -> &str {
    target.trim_start_matches('/').split_once('/').map_or(target, |(_, rest)| rest)
}

fn busy() -> Answer {
    if chance(50) { Answer::error(503, "SlowDown") } else { Answer::error(500, "InternalError") }
}

/// What stands between a client and its store answers for it: a portal, a proxy's apology.
fn page(ask: Ask) -> Answer {
    const PAGE: &str = "<html><head><title>Welcome</title></head><body><h1>Log in to the network</h1><p>Please accept the terms.</p></body></html>";
    let mut answer = Answer::new(200, if ask == Ask::Head { "" } else { PAGE });
    // A list's or a bulk delete's answer is known by its words even where nothing says what it is.
    if !matches!(ask, Ask::List | Ask::Bulk) || chance(50) {
        answer = answer.with("content-type", "text/html; charset=utf-8");
    }
    if chance(50) {
        answer = answer.with("etag", "\"5f3c-page\"").with("last-modified", "Mon, 30 Nov 2026 00:00:00 GMT");
    }
    if ask == Ask::Head {
        answer.length = Some(PAGE.len() as u64);
    }
    answer
}

fn as_if_deleted(ask: Ask, request: &Request) -> Answer {
    if ask != Ask::Bulk {
        return Answer::new(204, Bytes::new());
    }
    let xml = String::from_utf8_lossy(&request.body).into_owned();
    let deleted = texts(&xml, "Key").iter().map(|k| format!("<Deleted><Key>{k}</Key></Deleted>")).collect::<String>();
    Answer::xml(200, format!("<?xml version=\"1.0\"?><DeleteResult>{deleted}</DeleteResult>"))
}

/// One bit. In a list not one of a key: lists have no checksum, and one valid key in another's place is told by nobody but TLS.
fn flipped(ask: Ask, body: &Bytes) -> Option<Bytes> {
    let text = String::from_utf8_lossy(body).into_owned();
    for _ in 0..64 {
        let at = below(body.len() as u64) as usize;
        let in_key = ask == Ask::List
            && text.get(..at).is_some_and(|before| {
                before.rfind("<Key>").is_some_and(|open| before.rfind("</Key>").is_none_or(|close| close < open))
            });
        if !in_key {
            let mut bytes = body.to_vec();
            bytes[at] ^= 1 << below(8);
            return Some(bytes.into());
        }
    }
    None
}

fn wrong_length(ask: Ask, mut answer: Answer) -> (Answer, Delivery) {
    let length = answer.body.len() as u64;
    let off = 1 + below(9);
    match ask {
        Ask::Head => {
            let told = answer.length.unwrap_or(0);
            answer.length = Some(if chance(50) { told + off } else { told.saturating_sub(off) });
            return (answer, Delivery::Whole);
        }
        Ask::GetRange if chance(50) => {
            let range = answer.headers.iter().find(|(n, _)| n == "content-range").map(|(_, v)| v.clone());
            if let Some((bounds, total)) = range.as_deref().and_then(|r| r.rsplit_once('/')) {
                let total: u64 = total.parse().unwrap_or(0);
                answer.set("content-range", format!("{bounds}/{}", total + off));
            }
            return (answer, Delivery::Whole);
        }
        Ask::List if chance(50) => {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if let Some((before, after)) = text.split_once("<Size>") {
                let (size, rest) = after.split_once('<').unwrap_or((after, ""));
                let size = size.parse::<u64>().unwrap_or(0) + off;
                answer.body = format!("{before}<Size>{size}<{rest}").into();
                return (answer, Delivery::Whole);
            }
        }
        _ => {}
    }
    if chance(50) {
        // More is promised than comes.
        answer.length = Some(length + off);
        (answer, Delivery::Cut(length as usize))
    } else {
        answer.body = answer.body.slice(..length.saturating_sub(off) as usize);
        (answer, Delivery::Whole)
    }
}

fn page_error(request: &Request, mut answer: Answer) -> Result<(Answer, Delivery), Answer> {
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let more = texts(&text, "IsTruncated").first() == Some(&"true");
    let asked = request.query("continuation-token").map(str::to_owned);
    let next = texts(&text, "NextContinuationToken").first().map(|t| (*t).to_owned());
    if !more && asked.is_none() {
        return Err(answer);
    }
    let whole = |body: String| Answer { body: body.into(), ..Answer::xml(200, String::new()) };
    match (below(4), next, asked) {
        (0, Some(next), _) => {
            answer = whole(text.replace(&format!("<NextContinuationToken>{next}</NextContinuationToken>"), ""));
            Ok((answer, Delivery::Whole))
        }
        (1, Some(next), Some(asked)) => Ok((whole(text.replace(&next, &asked)), Delivery::Whole)),
        (2, ..) => {
            let cut = below(answer.body.len() as u64) as usize;
            Ok((answer, Delivery::Cut(cut)))
        }
        _ => Ok((busy(), Delivery::Whole)),
    }
}
