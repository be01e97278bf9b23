//! Labels on the command line: given to a checkpoint, and looked for.

use ckptfs::error::{Error, Kind, Result};
use ckptfs::format::Labels;
use ckptfs::format::labels::{check_key, pair};

/// Of the verbs that begin a checkpoint.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Write this on the checkpoint, for ever; `ls --label` finds it. May be given several times, at most 16
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,
}

impl Args {
    /// The labels.
    ///
    /// # Errors
    /// When a key is given twice, or there are too many.
    pub(crate) fn labels(&self) -> Result<Labels> {
        Labels::new(self.labels.iter().cloned()).map_err(|why| Error::new(Kind::Invalid, why))
    }
}

/// What a checkpoint must have to be listed: a key, with this value where one is named.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    key: String,
    value: Option<String>,
}

impl Wanted {
    /// `KEY=VALUE` or `KEY`.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.contains('=') {
            return pair(text).map(|(key, value)| Self { key, value: Some(value) });
        }
        check_key(text).map(|()| Self { key: text.to_owned(), value: None })
    }

    /// Whether these labels have it.
    pub(crate) fn is_on(&self, labels: &Labels) -> bool {
        labels.get(&self.key).is_some_and(|found| self.value.as_deref().is_none_or(|value| value == found))
    }
}

/// All of them in one cell of a table, cut where they would push the others off the screen: `show` has them in full.
pub(crate) fn cell(labels: &Labels) -> String {
    const WIDTH: usize = 48;
    let text = labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    match text.char_indices().nth(WIDTH) {
        Some(_) => text.chars().take(WIDTH - 1).chain(['…']).collect(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[&str]) -> Labels {
        Labels::new(of.iter().map(|text| pair(text).unwrap())).unwrap()
    }

    #[test]
    fn a_key_alone_is_on_whatever_has_it_and_a_pair_only_on_the_same() {
        let has = labels(&["release=1.4", "empty="]);
        let is_on = |text: &str| Wanted::parse(text).unwrap().is_on(&has);
        assert!(is_on("release") && is_on("release=1.4") && is_on("empty") && is_on("empty="));
        assert!(!is_on("release=1.5") && !is_on("release=") && !is_on("team") && !is_on("empty=1"));
        for wrong in ["", "=1", "a b"] {
            assert!(Wanted::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_cell_is_never_wider_than_its_column() {
        assert_eq!(cell(&labels(&["b=2", "a=1"])), "a=1,b=2");
        let exact = format!("k={}", "v".repeat(46));
        assert_eq!(cell(&labels(&[&exact])), exact);
        let cut = cell(&labels(&[&format!("k={}", "ü".repeat(47))]));
        assert_eq!((cut.chars().count(), cut.ends_with("ü…")), (48, true));
    }
}
