//! The text that is counted: which files, in which order, and how to read on from a position.
//!
//! A word is a maximal run of `[A-Za-z_]` within one file, which awk says as easily.

use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ckptfs::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// A demo over less shows nothing, and its process would be done before it could be killed.
pub(crate) const LEAST: u64 = 1 << 20;

/// Longest word in bytes: what the reader holds in memory at once.
const WORD_LEN: u64 = 64 << 20;

/// A file and its length when the demo began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
}

/// All files in the order in which they are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) texts: Vec<Text>,
}

/// Where reading goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Index of the file.
    pub(crate) file: u64,
    /// The next byte of it; a word never goes across.
    pub(crate) byte: u64,
    /// Bytes before it, in all files.
    pub(crate) done: u64,
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_'
}

/// The words of a piece that begins and ends between words.
pub(crate) fn words(piece: &[u8]) -> impl Iterator<Item = &[u8]> {
    piece.split(|b| !is_word(*b)).filter(|w| !w.is_empty())
}

fn unreadable(path: &Path, e: std::io::Error) -> Error {
    Error::with_source(Kind::Other, format!("cannot read {}: {e}", path.display()), e)
}

/// Where cargo keeps the sources of the crates that it fetched.
pub(crate) fn cargo_sources() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cargo")));
    let sources = home.map(|h| h.join("registry/src")).filter(|s| s.is_dir());
    sources.ok_or_else(|| {
        Error::new(Kind::NotFound, "cargo has fetched no crates here: name a directory with text, `ckptfs demo DIR`")
    })
}

impl Source {
    /// The files below a directory in the order of their paths' bytes, until `most` bytes are together. `ending`: only files whose name ends so.
    pub(crate) fn find(directory: &Path, ending: &str, most: u64) -> Result<Self> {
        let root = directory.canonicalize().map_err(|e| unreadable(directory, e))?;
        let mut found = Vec::new();
        walk(&root, ending, &mut found)?;
        found.sort_unstable_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
        let mut sum = 0u64;
        found.retain(|t| {
            let fits = sum.saturating_add(t.size) <= most;
            sum += if fits { t.size } else { 0 };
            fits
        });
        let source = Self { texts: found };
        if source.bytes() < LEAST {
            return Err(Error::new(
                Kind::Invalid,
                format!(
                    "{} holds {} bytes of text in files, and the demo needs at least {LEAST}: name a larger directory",
                    directory.display(),
                    source.bytes()
                ),
            ));
        }
        Ok(source)
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.texts.iter().map(|t| t.size).sum()
    }

    /// Parts of about the same length, each some files in a row; with few files some parts are empty.
    pub(crate) fn split(&self, parts: u32) -> Vec<Self> {
        let total = self.bytes().max(1);
        let mut out: Vec<Self> = (0..parts).map(|_| Self { texts: Vec::new() }).collect();
        let mut before = 0u64;
        for text in &self.texts {
            let middle = before.saturating_add(text.size / 2).min(total - 1);
            let part = u128::from(middle) * u128::from(parts) / u128::from(total);
            if let Some(part) = usize::try_from(part).ok().and_then(|p| out.get_mut(p)) {
                part.texts.push(text.clone());
            }
            before = before.saturating_add(text.size);
        }
        out
    }

    /// Writes the list for another process: size and path, one file a line.
    pub(crate) fn write_list(&self, to: &Path) -> Result<()> {
        let mut out = Vec::new();
        for t in &self.texts {
            out.extend_from_slice(t.size.to_string().as_bytes());
            out.push(b'\t');
            out.extend_from_slice(t.path.as_os_str().as_bytes());
            out.push(b'\n');
        }
        write(to, &out)
    }

    /// Writes the paths alone, one a line.
    pub(crate) fn write_paths(&self, to: &Path) -> Result<()> {
        let lines: Vec<&[u8]> = self.texts.iter().flat_map(|t| [t.path.as_os_str().as_bytes(), b"\n"]).collect();
        write(to, &lines.concat())
    }

    /// Reads [`Source::write_list`] back.
    pub(crate) fn read_list(from: &Path) -> Result<Self> {
        let list = std::fs::read(from).map_err(|e| unreadable(from, e))?;
        let line = |l: &[u8]| {
            let tab = l.iter().position(|b| *b == b'\t')?;
            let size = std::str::from_utf8(l.get(..tab)?).ok()?.parse().ok()?;
            Some(Text { path: std::ffi::OsString::from_vec(l.get(tab + 1..)?.to_vec()).into(), size })
        };
        let texts: Option<Vec<Text>> = list.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(line).collect();
        texts
            .map(|texts| Self { texts })
            .ok_or_else(|| Error::new(Kind::Invalid, format!("{} is no list of files", from.display())))
    }

    /// The next piece of at least `want` bytes where the file has so many, which ends between words, and the position after it.
    /// Nothing at the end of all files.
    pub(crate) fn piece(&self, mut at: Position, want: u64) -> Result<Option<(Vec<u8>, Position)>> {
        let (text, size) = loop {
            let Some(text) = usize::try_from(at.file).ok().and_then(|i| self.texts.get(i)) else { return Ok(None) };
            if at.byte < text.size {
                break (text, text.size);
            }
            at = Position { file: at.file + 1, byte: 0, ..at };
        };
        let file = File::open(&text.path).map_err(|e| unreadable(&text.path, e))?;
        let now = file.metadata().map_err(|e| unreadable(&text.path, e))?.len();
        if now != size {
            return Err(Error::new(
                Kind::Conflict,
                format!("{} has changed while it was counted: name a directory that holds still", text.path.display()),
            ));
        }
        let mut length = want.clamp(1, size - at.byte);
        loop {
            let mut piece = vec![0; usize::try_from(length).map_err(|_| too_long(&text.path))?];
            file.read_exact_at(&mut piece, at.byte).map_err(|e| unreadable(&text.path, e))?;
            let at_end = at.byte + length == size;
            let end = if at_end { Some(piece.len()) } else { piece.iter().rposition(|b| !is_word(*b)).map(|i| i + 1) };
            if let Some(end) = end {
                piece.truncate(end);
                let end = end as u64;
                return Ok(Some((piece, Position { byte: at.byte + end, done: at.done + end, ..at })));
            }
            if length > WORD_LEN {
                return Err(too_long(&text.path));
            }
            length = length.saturating_mul(2).min(size - at.byte);
        }
    }
}

fn too_long(path: &Path) -> Error {
    Error::new(Kind::Invalid, format!("{} has a word of more than {WORD_LEN} bytes", path.display()))
}

fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    File::create(to)
        .and_then(|mut f| f.write_all(bytes))
        .map_err(|e| Error::with_source(Kind::Other, format!("cannot write {}: {e}", to.display()), e))
}

fn walk(directory: &Path, ending: &str, found: &mut Vec<Text>) -> Result<()> {
    let fail = |e| unreadable(directory, e);
    for entry in std::fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(fail)?);
        if kind.is_dir() {
            walk(&path, ending, found)?;
        } else if kind.is_file() && path.as_os_str().as_bytes().ends_with(ending.as_bytes()) {
            // The recount reads one path a line.
            if path.as_os_str().as_bytes().contains(&b'\n') {
                log::warn!("{} is left out: its name has a line feed", path.display());
                continue;
            }
            let size = entry.metadata().map_err(fail)?.len();
            found.push(Text { path, size });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn source(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Source) {
        let dir = tempfile::tempdir().unwrap();
        let mut texts = Vec::new();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, bytes).unwrap();
            texts.push(Text { path, size: bytes.len() as u64 });
        }
        (dir, Source { texts })
    }

    fn count(source: &Source, want: u64, mut at: Position) -> BTreeMap<Vec<u8>, u64> {
        let mut out = BTreeMap::new();
        while let Some((piece, next)) = source.piece(at, want).unwrap() {
            assert!(next.done > at.done);
            at = next;
            for w in words(&piece) {
                *out.entry(w.to_vec()).or_default() += 1;
            }
        }
        assert_eq!(at.done, source.bytes());
        out
    }

    #[test]
    fn pieces_of_any_size_have_the_same_words() {
        let (_dir, s) = source(&[
            ("a", b"let a_b = Foo; // \xc3\xa9t\xc3\xa9 a1b2 foo"),
            ("b", b""),
            ("c", b"foo\nbar__ _\0x"),
            ("d", b"...."),
            ("e", b"averyveryverylongwordindeed"),
        ]);
        let whole = count(&s, 1 << 20, Position::default());
        assert_eq!(whole[&b"foo"[..]], 2);
        assert_eq!((whole[&b"a"[..]], whole[&b"b"[..]], whole[&b"t"[..]], whole[&b"_"[..]]), (1, 1, 1, 1));
        assert!(whole.contains_key(&b"averyveryverylongwordindeed"[..]) && whole.contains_key(&b"bar__"[..]));
        for want in 0..40 {
            assert_eq!(count(&s, want, Position::default()), whole, "{want}");
        }
        // Reading goes on from any position that a piece ended at.
        let (piece, at) = s.piece(Position::default(), 9).unwrap().unwrap();
        let mut rest = count(&s, 3, at);
        for w in words(&piece) {
            *rest.entry(w.to_vec()).or_default() += 1;
        }
        assert_eq!(rest, whole);
    }

    #[test]
    fn parts_are_of_about_the_same_length_and_have_every_file_once() {
        let texts: Vec<Text> = (0..100).map(|i| Text { path: format!("{i}").into(), size: 10 + i % 7 }).collect();
        let source = Source { texts };
        for parts in [1, 3, 12] {
            let split = source.split(parts);
            let all: Vec<Text> = split.iter().flat_map(|s| s.texts.clone()).collect();
            assert_eq!(all, source.texts);
            let even = source.bytes() / u64::from(parts);
            assert!(split.iter().all(|s| s.bytes().abs_diff(even) <= 20), "{split:?}");
        }
        let one = Source { texts: vec![Text { path: "x".into(), size: 5 }] };
        assert_eq!(one.split(4).iter().map(|s| s.texts.len()).sum::<usize>(), 1);
    }

    #[test]
    fn files_are_found_in_order_and_the_list_comes_back() {
        let text = vec![b'x'; usize::try_from(LEAST).unwrap()];
        let (dir, _) =
            source(&[("b/y.rs", &text), ("a.rs", b"1"), ("b/no.txt", b"no"), ("c\nd.rs", b"2"), ("z.rs", &text)]);
        let all = Source::find(dir.path(), ".rs", u64::MAX).unwrap();
        let names: Vec<_> = all.texts.iter().map(|t| t.path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.rs", "y.rs", "z.rs"]);
        assert_eq!(Source::find(dir.path(), ".rs", LEAST + 1).unwrap().texts.len(), 2);
        assert_eq!(Source::find(dir.path(), "", u64::MAX).unwrap().texts.len(), 4);
        let list = dir.path().join("list");
        all.write_list(&list).unwrap();
        assert_eq!(Source::read_list(&list).unwrap(), all);
        std::fs::write(&list, "no list\n").unwrap();
        assert_eq!(Source::read_list(&list).unwrap_err().kind(), Kind::Invalid);

        let small = Source::find(dir.path(), ".txt", u64::MAX).unwrap_err();
        assert!(small.message().contains("larger directory"), "{small}");
        let missing = Source::find(&dir.path().join("missing"), "", 1).unwrap_err();
        assert!(missing.message().contains("missing"), "{missing}");
    }

    #[test]
    fn a_file_that_changes_ends_the_demo() {
        let (dir, s) = source(&[("a", b"some words here")]);
        let (_, at) = s.piece(Position::default(), 5).unwrap().unwrap();
        std::fs::write(dir.path().join("a"), "others").unwrap();
        assert_eq!(s.piece(at, 5).unwrap_err().kind(), Kind::Conflict);
    }
}
