#!/usr/bin/env bash
# Builds ckptfs, runs its demo, and counts the same words again with awk.
# usage: scripts/demo.sh [DIR] [options of `ckptfs demo`]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need "${build_needs[@]}"

echo "Building; the first time it compiles RocksDB, which takes about half an hour on two cores" >&2
cargo build --release --locked --manifest-path "$here/Cargo.toml"
ckptfs=$target/release/ckptfs

work=$(mktemp -d --suffix=.ckptfs-demo)
clean() {
  # The demo cleans up behind itself; this is for one that was killed.
  for mount in "$work"/*/mnt; do
    if mountpoint -q "$mount"; then "$ckptfs" umount --lazy "$mount" || true; fi
  done
  rm -rf --one-file-system "$work"
}
trap clean EXIT

"$ckptfs" demo --work "$work" --counts "$work/counted" --paths "$work/paths" "$@"

echo "Counting again with awk" >&2
LC_ALL=C awk -v paths="$work/paths" '
  BEGIN {
    while ((getline path < paths) > 0) {
      RS = "[^A-Za-z_]+"
      while ((got = (getline word < path)) > 0) if (word != "") count[word]++
      if (got < 0) { print "cannot read " path > "/dev/stderr"; exit 2 }
      close(path)
      RS = "\n"
    }
    for (word in count) printf "%s %d\n", word, count[word]
  }' | LC_ALL=C sort >"$work/recounted"

if ! cmp -s "$work/counted" "$work/recounted"; then
  echo "counts differ; the first difference, < demo, > awk:" >&2
  diff "$work/counted" "$work/recounted" | head -n 4 >&2 || true
  exit 1
fi
echo "counts equal"
