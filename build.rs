//! Has RocksDB's C++ library linked into the program where the compiler has it as an archive: it starts a millisecond sooner, and runs
//! on hosts that have no libstdc++.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const ARCHIVE: &str = "libstdc++.a";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CXX");
    if env::var_os("CARGO_FEATURE_ROCKSDB").is_none() {
        return;
    }
    let (Some(archive), Some(out)) = (archive(), env::var_os("OUT_DIR").map(PathBuf::from)) else { return };
    // RocksDB's crate asks for the shared one by name. A script of the linker under that name, in a directory that it looks into first,
    // is the only way to answer with another that works for the tests as well.
    let script = format!("GROUP ( \"{}\" )\n", archive.display());
    if fs::write(out.join("libstdc++.so"), script).is_ok() {
        println!("cargo:rustc-link-search=native={}", out.display());
    }
}

/// Where the compiler has it: CXX may be several words, as `ccache clang++`.
fn archive() -> Option<PathBuf> {
    let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let mut words = compiler.split_whitespace();
    let asked = Command::new(words.next()?).args(words).arg(format!("-print-file-name={ARCHIVE}")).output().ok()?;
    let path = String::from_utf8(asked.stdout).ok()?;
    let path = Path::new(path.trim()).canonicalize().ok()?;
    path.is_absolute().then_some(path)
}
