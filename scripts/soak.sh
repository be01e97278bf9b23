#!/usr/bin/env bash
# Writers, sweepers, mounts, readers and a clone at once, with kill -9 at random, over a directory and over S3; then 300 histories of a job,
# and the largest searches of the protocol, which take hours and 16 GiB.
# usage: scripts/soak.sh [SECONDS]   (of each, default 600)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need "${build_needs[@]}" rocksdb-tools python3-venv attr procps strace
cd "$here"
export CARGO_TARGET_DIR=$target CKPTFS_SOAK_SECONDS=${1:-600}
export PATH="$target/test-tools/bin:$PATH"
command -v weed >/dev/null || { echo "run scripts/test.sh first: it installs the S3 server" >&2; exit 1; }
cargo test --release --locked --test mount -- soak:: --nocapture --test-threads=1
# Random histories of a whole job.
CKPTFS_HISTORIES=300 cargo test --release --locked --test job -- --nocapture
# Five failed attempts on a database of a gigabyte.
CKPTFS_RETRY_MIB=1024 cargo test --release --locked --test job six_attempts -- --nocapture
# A bad link.
CKPTFS_FAULTY_READS=100000 cargo test --release --locked --test mount -- over_a_bad_link --nocapture
# The protocol's largest configurations.
CKPTFS_EXPLORE_LARGE=1 cargo test --release --locked --test explorer every -- --nocapture
# Power cuts.
CKPTFS_POWER_IMAGES=10000 cargo test --release --locked --test campaign power:: -- --nocapture --test-threads=1
# Orders of steps.
CKPTFS_SCHEDULES=10000 cargo test --release --locked --no-default-features --features schedules --lib schedules:: -- --nocapture --test-threads=1
