//! The matrix: kinds of fault by kinds of request, which cells can exist, and how often each was hit.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::http::Request;

/// What is asked of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ask {
    GetWhole,
    GetRange,
    Head,
    List,
    Create,
    Put,
    Begin,
    Part,
    Complete,
    Abort,
    Delete,
    Bulk,
}

pub const ASKS: [Ask; 12] = [
    Ask::GetWhole,
    Ask::GetRange,
    Ask::Head,
    Ask::List,
    Ask::Create,
    Ask::Put,
    Ask::Begin,
    Ask::Part,
    Ask::Complete,
    Ask::Abort,
    Ask::Delete,
    Ask::Bulk,
];

impl Ask {
    /// What a request is; nothing for what no store of ours asks.
    pub fn of(request: &Request) -> Option<Self> {
        let has = |name| request.query(name).is_some();
        Some(match request.method.as_str() {
            "GET" if has("list-type") => Self::List,
            "GET" if request.key.is_empty() => return None,
            "GET" if request.header("range").is_some() => Self::GetRange,
            "GET" => Self::GetWhole,
            "HEAD" => Self::Head,
            "PUT" if has("partNumber") => Self::Part,
            "PUT" if request.header("if-none-match").is_some() => Self::Create,
            "PUT" => Self::Put,
            "POST" if has("uploads") => Self::Begin,
            "POST" if has("uploadId") => Self::Complete,
            "POST" if has("delete") => Self::Bulk,
            "DELETE" if has("uploadId") => Self::Abort,
            "DELETE" => Self::Delete,
            _ => return None,
        })
    }

    pub fn is_read(self) -> bool {
        matches!(self, Self::GetWhole | Self::GetRange | Self::Head | Self::List)
    }

    /// Whether its body goes up.
    fn sends(self) -> bool {
        matches!(self, Self::Create | Self::Put | Self::Part)
    }

    fn answers_nothing(self) -> bool {
        matches!(self, Self::Delete | Self::Abort)
    }

    fn deletes(self) -> bool {
        matches!(self, Self::Delete | Self::Bulk | Self::Abort)
    }

    fn shown(self) -> &'static str {
        match self {
            Self::GetWhole => "GET",
            Self::GetRange => "range",
            Self::Head => "HEAD",
            Self::List => "LIST",
            Self::Create => "create",
            Self::Put => "blob",
            Self::Begin => "m-begin",
            Self::Part => "m-part",
            Self::Complete => "m-compl",
            Self::Abort => "m-abort",
            Self::Delete => "DELETE",
            Self::Bulk => "bulk",
        }
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Before,
    After,
    Lost,
    Conflict,
    OwnSuccess,
    Truncated,
    Flipped,
    Swapped,
    WrongLength,
    Html,
    Page,
    Twice,
    Late,
    Slow,
    Hang,
}

pub const KINDS: [Kind; 15] = [
    Kind::Before,
    Kind::After,
    Kind::Lost,
    Kind::Conflict,
    Kind::OwnSuccess,
    Kind::Truncated,
    Kind::Flipped,
    Kind::Swapped,
    Kind::WrongLength,
    Kind::Html,
    Kind::Page,
    Kind::Twice,
    Kind::Late,
    Kind::Slow,
    Kind::Hang,
];

impl Kind {
    fn shown(self) -> &'static str {
        match self {
            Self::Before => "5xx before effect",
            Self::After => "5xx after effect",
            Self::Lost => "answer lost after success",
            Self::Conflict => "409 that stored nothing",
            Self::OwnSuccess => "412 for its own success",
            Self::Truncated => "truncated body",
            Self::Flipped => "flipped bit",
            Self::Swapped => "swapped body",
            Self::WrongLength => "wrong length",
            Self::Html => "HTML with 200",
            Self::Page => "list page error",
            Self::Twice => "duplicate delete",
            Self::Late => "late delete",
            Self::Slow => "slow",
            Self::Hang => "hang",
        }
    }
}

/// Why a cell cannot be; nothing for one that must be hit.
pub fn impossible(kind: Kind, ask: Ask) -> Option<&'static str> {
    match kind {
        Kind::Before | Kind::Lost | Kind::Html | Kind::Slow | Kind::Hang => None,
        Kind::After => ask.is_read().then_some("a read has no effect"),
        Kind::Conflict => ask.is_read().then_some("a read meets no other write"),
        Kind::OwnSuccess => (ask != Ask::Create).then_some("only a create has a condition"),
        Kind::Truncated | Kind::Flipped => {
            (ask == Ask::Head || ask.answers_nothing()).then_some("neither request nor answer has a body")
        }
        Kind::Swapped | Kind::WrongLength if ask.sends() => {
            Some("its answer has no body, and the body that it sends is signed: the rows above")
        }
        Kind::Swapped | Kind::WrongLength => ask.answers_nothing().then_some("neither request nor answer has a body"),
        Kind::Page => (ask != Ask::List).then_some("only lists have pages"),
        Kind::Twice | Kind::Late => (!ask.deletes()).then_some("it deletes nothing"),
    }
}

/// How often each cell was hit.
#[derive(Default)]
pub struct Matrix([[AtomicU64; KINDS.len()]; ASKS.len()]);

impl Matrix {
    pub fn hit(&self, kind: Kind, ask: Ask) {
        self.0[ask as usize][kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self, kind: Kind, ask: Ask) -> u64 {
        self.0[ask as usize][kind as usize].load(Ordering::Relaxed)
    }

    pub fn total(&self) -> u64 {
        self.0.iter().flatten().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// The kind that an ask has met least.
    pub fn rarest(&self, ask: Ask) -> (Kind, u64) {
        let there = KINDS.into_iter().filter(|k| impossible(*k, ask).is_none());
        there.map(|k| (k, self.get(k, ask))).min_by_key(|(_, n)| *n).unwrap()
    }

    /// The cells that were hit less often than this.
    pub fn below(&self, least: u64, asks: &[Ask]) -> Vec<(Kind, Ask, u64)> {
        let cells = KINDS.into_iter().flat_map(|k| asks.iter().map(move |a| (k, *a)));
        let there = cells.filter(|(k, a)| impossible(*k, *a).is_none());
        there.map(|(k, a)| (k, a, self.get(k, a))).filter(|(.., n)| *n < least).collect()
    }

    /// As text, with the reasons of what cannot be.
    pub fn table(&self) -> String {
        let mut out = format!("{:<26}", "");
        ASKS.iter().for_each(|a| write!(out, "{:>8}", a.shown()).unwrap());
        let mut reasons: Vec<&'static str> = Vec::new();
        for kind in KINDS {
            write!(out, "\n{:<26}", kind.shown()).unwrap();
            for ask in ASKS {
                match impossible(kind, ask) {
                    None => write!(out, "{:>8}", self.get(kind, ask)).unwrap(),
                    Some(why) => {
                        let at = reasons.iter().position(|r| *r == why).unwrap_or_else(|| {
                            reasons.push(why);
                            reasons.len() - 1
                        });
                        write!(out, "{:>8}", format!("({})", at + 1)).unwrap();
                    }
                }
            }
        }
        reasons.iter().enumerate().for_each(|(i, why)| write!(out, "\n({}) {why}", i + 1).unwrap());
        out
    }
}
