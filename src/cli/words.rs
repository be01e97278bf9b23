//! Words for people: sizes, times, tables, progress bars. Whatever came from a store is cleaned before it reaches a terminal.

use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use ckptfs::engine::Progress;
use ckptfs::error::{Error, Kind, Result};
use ckptfs::restore::Selection;
use ckptfs::restore::select::job_name;
use ckptfs::types::{CheckpointNumber, Name, Size, Utc, is_hidden};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// Control and direction characters become `?`, so that no name can move the cursor or turn a line around.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) && c != '\n' { '?' } else { c }).collect()
}

/// A job's name on the command line; a wrong one is a wrong usage.
pub(crate) fn job(text: &str) -> std::result::Result<Name, String> {
    job_name(text.trim_end_matches('/')).map_err(|e| e.message().to_owned())
}

/// A checkpoint, a subtask, or a path below it.
pub(crate) fn path(text: &str) -> std::result::Result<Selection, String> {
    let selection = Selection::parse(text).map_err(|e| e.message().to_owned())?;
    match selection.rest.iter().find(|part| ckptfs::format::task::file_name(part).is_err()) {
        Some(part) => Err(format!("{part:?} cannot stand in a path of the mount")),
        None => Ok(selection),
    }
}

/// A whole checkpoint.
pub(crate) fn checkpoint(text: &str) -> std::result::Result<Selection, String> {
    let found = selection(text)?;
    found.whole().map_err(|e| e.message().to_owned())?;
    Ok(found)
}

/// A whole checkpoint by its number: `latest` may be another one by the time that it is acted on.
pub(crate) fn numbered(text: &str) -> std::result::Result<Selection, String> {
    let found = checkpoint(text)?;
    match found.number {
        Some(_) => Ok(found),
        None => Err(format!(
            "{text:?} may be another checkpoint in a moment: name it by its number (`ckptfs path {text}` tells it)"
        )),
    }
}

/// Job and number of a [`numbered`] checkpoint.
pub(crate) fn number_of(selection: &Selection) -> Result<(Name, CheckpointNumber)> {
    let number = selection.number.ok_or_else(|| Error::new(Kind::Invalid, "a checkpoint's number is missing"))?;
    Ok((selection.job.clone(), number))
}

/// Where to listen: `9464` or `127.0.0.1:9464`, `[::]:9464`.
pub(crate) fn listen(text: &str) -> std::result::Result<SocketAddr, String> {
    let port = text.trim_start_matches(':').parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.ok().or_else(|| text.parse().ok()).ok_or_else(|| {
        format!("{text:?} is neither a port, such as 9464 on 127.0.0.1, nor an address with one, such as 0.0.0.0:9464")
    })
}

/// `90s`, `30m`, `24h`, `7d` in milliseconds.
pub(crate) fn duration_ms(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("{text:?} is not a duration: write 90s, 30m, 24h or 7d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (count, unit) = text.split_at(digits);
    let unit: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let count: u64 = count.parse().map_err(|_| wrong())?;
    count.checked_mul(unit).ok_or_else(wrong)
}

/// `20GiB`, `1.5MB` or a number of bytes.
pub(crate) fn bytes(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: write 20GiB, 50MiB, a number of bytes");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let (count, fraction) = count.split_once('.').unwrap_or((count, "0"));
    if fraction.is_empty() || fraction.len() > 3 {
        return Err(wrong());
    }
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "kB" | "KB" => 1000,
        "KiB" | "K" => 1 << 10,
        "MB" => 1_000_000,
        "MiB" | "M" => 1 << 20,
        "GB" => 1_000_000_000,
        "GiB" | "G" => 1 << 30,
        "TB" => 1_000_000_000_000,
        "TiB" | "T" => 1 << 40,
        _ => return Err(wrong()),
    };
    let whole = count.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)?;
    let parts: u64 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
    let part = unit.checked_mul(parts).map(|n| n / 1000);
    part.and_then(|part| whole.checked_add(part)).ok_or_else(wrong)
}

/// A checkpoint's name on the command line.
pub(crate) fn selection(text: &str) -> std::result::Result<Selection, String> {
    let selection = path(text)?;
    selection.exact().map_err(|e| e.message().to_owned())?;
    Ok(selection)
}

/// `1.5 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// `2026-11-29 16:18:00` in UTC, from milliseconds since 1970.
pub(crate) fn time(ms: u64) -> String {
    Utc(ms).to_string()
}

/// Prints a line to standard output.
pub(crate) fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{text}")
        .map_err(|e| Error::with_source(Kind::Other, format!("cannot write to standard output: {e}"), e))
}

/// Prints a part of a line to standard output.
pub(crate) fn part(text: &str) -> Result<()> {
    write!(std::io::stdout().lock(), "{text}")
        .map_err(|e| Error::with_source(Kind::Other, format!("cannot write to standard output: {e}"), e))
}

/// Prints a JSON value to standard output.
pub(crate) fn json(value: &Value) -> Result<()> {
    line(&serde_json::to_string_pretty(value).map_err(|e| Error::with_source(Kind::Other, "cannot make JSON", e))?)
}

/// Tells a person on standard error.
pub(crate) fn tell(quiet: bool, text: &str) {
    if !quiet {
        let _ = writeln!(std::io::stderr().lock(), "{}", clean(text));
    }
}

/// A table: the first row is the head; columns whose head starts with `>` are aligned to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let right: Vec<bool> =
        (0..columns).map(|c| rows.first().and_then(|r| r.get(c)).is_some_and(|h| h.starts_with('>'))).collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .enumerate()
        .map(|(i, row)| row.iter().map(|t| clean(if i == 0 { t.trim_start_matches('>') } else { t })).collect())
        .collect();
    let width = |c: usize| cells.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &cells {
        let mut text = String::new();
        for ((cell, width), right) in row.iter().zip(&widths).zip(&right) {
            let pad = " ".repeat(width - cell.chars().count());
            text.push_str(&if *right { format!("{pad}{cell}  ") } else { format!("{cell}{pad}  ") });
        }
        line(text.trim_end())?;
    }
    Ok(())
}

/// A progress bar on a terminal, nothing elsewhere.
pub(crate) struct Bar(Option<Mutex<ProgressBar>>);

impl Bar {
    /// A bar, unless standard error is not a terminal or only errors are wanted.
    pub(crate) fn new(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{msg:16} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(Some(Mutex::new(bar)))
    }

    fn with(&self, f: impl FnOnce(&ProgressBar)) {
        if let Some(Ok(bar)) = self.0.as_ref().map(Mutex::lock) {
            f(&bar);
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn finish(&self) {
        self.with(ProgressBar::finish_and_clear);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Bar {
    fn plan(&self, _files: u64, bytes: u64) {
        self.with(|bar| bar.set_length(bytes));
    }

    fn phase(&self, name: &'static str) {
        self.with(|bar| bar.set_message(name.to_owned()));
    }

    fn advance(&self, bytes: u64) {
        self.with(|bar| bar.inc(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        assert_eq!([0, 1023, 1024, 1536, 1 << 30].map(size), ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB"]);
        assert_eq!(size(u64::MAX), "15.9 EiB");
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(1_796_000_000_123), "2026-11-30 00:53:20");
    }

    #[test]
    fn durations() {
        assert_eq!(["90s", "30m", "24h", "7d"].map(duration_ms), [90_000, 1_800_000, 86_400_000, 604_800_000].map(Ok));
        for wrong in ["", "7", "d", "7w", "-1s", "99999999999999999999d", "1ü"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_moves_the_cursor() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\rd"), "a?[2Jb?c?d");
    }
}
