//! What kind of path a call is on: digests, numbers and nonces are blanked, so that runs can be compared.

use std::path::Path;

/// `store/outcome/app/N.json`, `cache/files/xx/H`.
pub fn kind(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    below.split('/').map(component).collect::<Vec<_>>().join("/")
}

fn component(name: &str) -> String {
    if name.starts_with('#') && name.ends_with("(deleted)") {
        return "(unnamed)".to_owned();
    }
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let hex = |s: &str| s.bytes().all(|b| b.is_ascii_hexdigit());
    if name.len() == 2 && hex(name) {
        return "xx".to_owned();
    }
    let mut out = String::new();
    for part in name.split_inclusive(['-', '.']) {
        let (word, end) = part.strip_suffix(['-', '.']).map_or((part, ""), |w| (w, &part[part.len() - 1..]));
        let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        let blank = if word.len() >= 16 && hex(word) && !digits {
            "H"
        } else if digits {
            "N"
        } else {
            word
        };
        out.push_str(blank);
        out.push_str(end);
    }
    out
}

#[test]
fn kinds() {
    let root = Path::new("/r");
    let of = |p: &str| kind(root, Path::new(p));
    assert_eq!(of("/r/store/outcome/app/00000000000000000002.json"), "store/outcome/app/N.json");
    let hex = "ab".repeat(32);
    assert_eq!(of(&format!("/r/store/blobs/ab/{hex}-{}", "cd".repeat(16))), "store/blobs/xx/H-H");
    assert_eq!(of(&format!("/r/cache/partial/{hex}")), "cache/partial/H");
    assert_eq!(of("/r/store/blobs/#123 (deleted)"), "store/blobs/(unnamed)");
}
