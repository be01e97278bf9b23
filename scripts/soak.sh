#!/usr/bin/env bash
# The campaign at length: what scripts/test.sh does in minutes, with sizes that take hours. Prints what was exercised; fails at the first
# byte that is lost or wrong.
# usage: scripts/soak.sh [PART...]   (all of them without a name, in this order)
#   crash      every call that changes a file, in each scenario, before, after and torn: 10 seeds; every request to an S3 server
#   ends       no space, quota, descriptors, memory, a failing disk, at every such call
#   faults     1,000,000 faulted requests to the store
#   power      10,000 distinct images of a disk after a power cut
#   flips      131,072 flipped bits in blobs, each bit of the metadata, 13,000 in what is fetched in part
#   schedules  orders of threads
#   fuzz       each decoder, ten minutes
#   cluster    20 lost volume hosts; and what several filers make of creates
#   soak       writers, sweepers, readers, restores, imports and kill -9: 50 minutes over a directory, 50 over S3
#   job        300 random histories of a job; five failed attempts on a gigabyte
#   link       100,000 reads over a bad link
#   explorer   the protocol's largest configurations (16 GiB of memory)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need "${build_needs[@]}" rocksdb-tools python3-venv attr procps iproute2 strace
cd "$here"
export CARGO_TARGET_DIR=$target
export PATH="$target/test-tools/bin:$PATH"
command -v weed >/dev/null || { echo "run scripts/test.sh first: it installs the S3 server" >&2; exit 1; }

run() {
  local program=$1
  shift
  cargo test --release --locked --test "$program" -- --nocapture --test-threads=1 "$@"
}

[ $# -gt 0 ] || set -- crash ends faults power flips schedules fuzz cluster soak job link explorer
for part; do
  echo "== $part"
  case $part in
    crash) CKPTFS_CRASH_SEEDS=10 CKPTFS_CRASH_SHARE=1 run campaign crash:: ;;
    ends) CKPTFS_CRASH_SHARE=1 run campaign ends:: ;;
    faults) CKPTFS_FAULTED_REQUESTS=1000000 run campaign faults:: ;;
    power) CKPTFS_POWER_IMAGES=10000 run campaign power:: ;;
    flips) CKPTFS_FLIPS=131072 run mount flips:: ;;
    schedules)
      CKPTFS_SCHEDULES=10000 cargo test --release --locked --no-default-features --features schedules --lib schedules:: -- \
        --nocapture --test-threads=1
      ;;
    fuzz) scripts/fuzz.sh 600 ;;
    cluster) CKPTFS_LOST_HOSTS=20 CKPTFS_FILER_SECONDS=20 run campaign cluster:: ;;
    soak) CKPTFS_SOAK_SECONDS=3000 run mount soak:: ;;
    job)
      CKPTFS_HISTORIES=300 run job
      CKPTFS_RETRY_MIB=1024 run job six_attempts
      ;;
    link) CKPTFS_FAULTY_READS=100000 run mount over_a_bad_link ;;
    explorer) CKPTFS_EXPLORE_LARGE=1 run explorer every ;;
    *) echo "there is no part $part" >&2; exit 2 ;;
  esac
done
