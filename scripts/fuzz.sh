#!/bin/sh
# Feeds the decoders of stored bytes with damaged and made-up input, guided by what code it reaches: the targets of fuzz/, one on each
# processor, from the inputs in fuzz/corpus. Fails when an input makes a decoder panic, hang or take more memory than its bytes pay for
# (the input is then in fuzz/artifacts), and when a target has run nothing. Inputs that were found stay in the target directory, for the
# next run.
# usage: scripts/fuzz.sh [SECONDS] [TARGET...]   (of each target, default 30 and all; CKPTFS_FUZZ_MEASURE=1 shows the memory that they use)
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here"

# One target, whose program is built.
if [ "${1-}" = --one ]; then
  target=$2 seconds=$3 name=$4
  found=$target/corpus/$name
  log=$target/logs/$name.log
  mkdir -p "$found" "$target/logs" "fuzz/artifacts/$name"
  set --
  if [ -f "fuzz/dict/$name.dict" ]; then
    set -- "-dict=fuzz/dict/$name.dict"
  fi
  # What a run finds goes to the first directory; the committed inputs are only read.
  status=0
  nice "$target/build/$(uname -m)-unknown-linux-gnu/release/$name" "-artifact_prefix=fuzz/artifacts/$name/" "$@" \
    -max_total_time="$seconds" -max_len=32768 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    "$found" "fuzz/corpus/$name" >"$log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  reached=$(sed -n 's/^#[0-9]*.*\(cov: [0-9]* ft: [0-9]* corp: [^ ]*\).*/\1/p' "$log" | tail -n 1)
  echo "$name: ${runs:-0} executions, $reached"
  [ -z "${CKPTFS_FUZZ_MEASURE-}" ] || grep 'bytes for' "$log" | tail -n 1
  if [ "$status" -ne 0 ]; then
    grep -E 'panicked|^assertion| left: |right: |bytes are allocated|ERROR:|SUMMARY:|Test unit written|^error' "$log" >&2 || tail -n 30 "$log" >&2
    echo "$name failed; all that it said is in $log" >&2
    exit 1
  elif [ "${runs:-0}" -eq 0 ]; then
    echo "$name has run no input; what it said is in $log" >&2
    exit 1
  fi
  exit 0
fi

seconds=30
case ${1-} in
  '') ;;
  *[!0-9]*) ;;
  *) seconds=$1 && shift ;;
esac
if [ $# -eq 0 ]; then
  for file in fuzz/fuzz_targets/*.rs; do
    name=${file##*/}
    set -- "$@" "${name%.rs}"
  done
fi
for name; do
  if [ ! -f "fuzz/fuzz_targets/$name.rs" ]; then
    echo "there is no target $name in fuzz/fuzz_targets" >&2
    exit 2
  fi
done

command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
target=${CARGO_TARGET_DIR:-$here/target}/fuzz
# The main build's compiler settings are of no use here, and its flags are not the fuzzer's.
unset CARGO_TARGET_DIR CARGO_INCREMENTAL RUSTFLAGS

PATH="$target/tools/bin:$PATH"
if ! command -v cargo-fuzz >/dev/null; then
  echo "Installing cargo-fuzz into $target/tools" >&2
  cargo install --quiet --locked --version 0.13.2 --root "$target/tools" --target-dir "$target/tools/build" cargo-fuzz
fi

# No sanitizer: those need an unreleased compiler, and safe code has little for them to find. Coverage does without.
cargo fuzz build --sanitizer none --target-dir "$target/build"
printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" sh scripts/fuzz.sh --one "$target" "$seconds"
