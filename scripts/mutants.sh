#!/bin/sh
# Mutation testing of lifecycle, format and restore (without the feature rocksdb): changes the code in one small place at a time, as
# cargo-mutants lists them, and fails unless the tests notice at least 95 of 100. All changes are built at once, each behind a switch,
# so that one costs only the tests that reach it (docs/MUTANTS.md says more). Prints what survived and the figures of each module.
# usage: scripts/mutants.sh [SHARD/OF]
#   CKPTFS_MUTANTS_AGAIN=1              tries what survived the last time, with tests that are new
#   CKPTFS_MUTANTS_WITH="explorer mount" test programs besides the library's own; "" for none: minutes instead of hours
#   CKPTFS_MUTANTS_OF="restore"         modules whose mutants are tried now; the others keep the verdicts that they have
#   CKPTFS_MUTANTS_ALONE=no             leaves out the three dozen that take a build of their own
#   CKPTFS_MUTANTS_TMP=DIR              where the tests put their files
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"

command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
target=${CARGO_TARGET_DIR:-$here/target}/mutants
unset CARGO_INCREMENTAL
mkdir -p "$target"

PATH="$target/tools/bin:$PATH"
if ! command -v cargo-mutants >/dev/null; then
  echo "Installing cargo-mutants into $target/tools" >&2
  cargo install --quiet --locked --version 27.1.0 --root "$target/tools" --target-dir "$target/tools/build" cargo-mutants
fi
cargo mutants --list --json -f 'src/lifecycle/**' -f 'src/format/**' -f 'src/restore/**' >"$target/list.json"

CARGO_TARGET_DIR="$target/tools/build" cargo build --quiet --release --locked --manifest-path scripts/mutants/Cargo.toml
export CARGO_TARGET_DIR="$target/build"
exec nice "$target/tools/build/release/ckptfs-mutants" "$here" "$target/list.json" "$target" "$@"
