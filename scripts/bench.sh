#!/bin/sh
# Measures ckptfs beside the native file system and beside what one would use instead. Prints ratios of paired runs.
#   scripts/bench.sh snapshot   a small change to a large database: RocksDB's checkpoint + cp + fsync, BackupEngine, restic, rclone
#   scripts/bench.sh sweep      planning a sweep of 1,000 checkpoints with 1,000,000 file entries; and what 100,000 forgotten numbers cost
#   scripts/bench.sh engine     what a checkpoint costs the job: sync phase beside RocksDB's checkpoint, speed beside an upload of 20 MB/s
#   scripts/bench.sh mount      warm reads through the mount beside the same reads without it
# BENCH_DIR: where it works (default: a new directory under target/, removed at the end). BENCH_PAIRS: pairs (default 15).
# BENCH_MIB: size of the database (default 1100). CKPTFS: the program (default: the release build).
set -eu
cd "$(dirname "$0")/.."
what=${1:-}
case $what in
snapshot) need="python3 restic rclone" lib=librocksdb7.8 ;;
mount) need="python3 fio" lib=librocksdb7.8 ;;
sweep | engine) need=python3 lib= ;;
*) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
missing=
for tool in $need; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
[ -z "$lib" ] || ldconfig -p | grep -q 'librocksdb\.so\.' || missing="$missing $lib"
if [ -n "$missing" ]; then
	echo "missing:$missing. On Debian: apt-get install$missing" >&2
	exit 1
fi
if [ -z "${CKPTFS:-}" ]; then
	cargo build --release --quiet
	CKPTFS=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/ckptfs
fi
export CKPTFS
if [ "$what" = sweep ] && [ -z "${MAKE_STORE:-}" ]; then
	cargo build --release --quiet --example make_store
	MAKE_STORE=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/examples/make_store
	export MAKE_STORE
fi
if [ "$what" = engine ] && [ -z "${BENCH_ENGINE:-}" ]; then
	cargo build --release --quiet --example bench_engine
	BENCH_ENGINE=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/examples/bench_engine
	export BENCH_ENGINE
fi
exec python3 benches/bench.py "$what"
