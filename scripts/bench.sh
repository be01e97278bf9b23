#!/bin/sh
# Measures ckptfs beside the native file system and beside what one would use instead. Prints ratios of paired runs.
#   scripts/bench.sh snapshot   a small change to a large database: RocksDB's checkpoint + cp + fsync, BackupEngine, restic, rclone
#   scripts/bench.sh sweep      planning a sweep of 1,000 checkpoints with 1,000,000 file entries; and what 100,000 forgotten numbers cost
#   scripts/bench.sh engine     what a checkpoint costs the job: sync phase beside RocksDB's checkpoint, speed beside an upload of 20 MB/s
#   scripts/bench.sh cold       a host that has nothing opens a database from S3 (SeaweedFS) at the end of a link; and a full download of it
#   scripts/bench.sh mount      warm reads through the mount beside the same reads without it
# BENCH_DIR: where it works (default: a new directory under target/, removed at the end). BENCH_PAIRS: pairs (default 15).
# BENCH_MIB: size of the database (default 1100). CKPTFS: the program (default: the release build).
# cold: BENCH_CHECKPOINTS (40), BENCH_GETS (2000), BENCH_ROUND_TRIP_MS (20), BENCH_MBIT (1000; 0: no limit).
set -eu
cd "$(dirname "$0")/.."
what=${1:-}
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $what in
snapshot) need="python3 restic rclone" lib=librocksdb7.8 ;;
cold) need=python3 lib=librocksdb7.8 ;;
mount) need="python3 fio" lib=librocksdb7.8 ;;
sweep | engine) need=python3 lib= ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
missing=
for tool in $need; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
[ -z "$lib" ] || ldconfig -p | grep -q 'librocksdb\.so\.' || missing="$missing $lib"
if [ -n "$missing" ]; then
	echo "missing:$missing. On Debian: apt-get install$missing" >&2
	exit 1
fi
if [ "$what" = cold ]; then
	PATH="$target/test-tools/bin:$PATH"
	command -v weed >/dev/null || { echo "run scripts/test.sh first: it installs the S3 server" >&2; exit 1; }
fi
if [ -z "${CKPTFS:-}" ]; then
	cargo build --release --quiet
	CKPTFS=$target/release/ckptfs
fi
export CKPTFS
if [ "$what" = sweep ] && [ -z "${MAKE_STORE:-}" ]; then
	cargo build --release --quiet --example make_store
	MAKE_STORE=$target/release/examples/make_store
	export MAKE_STORE
fi
if [ "$what" = engine ] && [ -z "${BENCH_ENGINE:-}" ]; then
	cargo build --release --quiet --example bench_engine
	BENCH_ENGINE=$target/release/examples/bench_engine
	export BENCH_ENGINE
fi
if [ "$what" = cold ]; then
	exec scripts/with-s3.sh python3 benches/bench.py "$what"
fi
exec python3 benches/bench.py "$what"
