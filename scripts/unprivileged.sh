#!/usr/bin/env bash
# The mount tests without root, where mounts are made by fusermount3.
# usage: scripts/unprivileged.sh FILTER...
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$here"
export CARGO_TARGET_DIR=$target
if [ "$(id -u)" -ne 0 ]; then
  exec cargo test --release --locked --test mount -- "$@"
fi
# Another user may not get into our directories, so the test program moves. The program itself is built beside it, before or after.
binary=$(cargo test --release --locked --no-run --test mount --message-format=json |
  sed -n '/"kind":\["test"\]/s/.*"executable":"\([^"]*\)".*/\1/p')
place=$(mktemp -d --tmpdir=/tmp --suffix=.ckptfs-nobody)
trap 'rm -rf --one-file-system "$place"' EXIT
install -d -o nobody -m 700 "$place/tmp"
install -m 755 "$binary" "$place/mount"
chmod 755 "$place"
cd "$place"
# Where only root may open /dev/fuse, a node that all may open stands in for it, seen by this program alone.
mknod -m 666 "$place/fuse" c 10 229
unshare --mount --propagation private sh -c 'mount --bind "$0" /dev/fuse && exec "$@"' "$place/fuse" \
  setpriv --reuid=nobody --regid=nogroup --clear-groups \
  env -i PATH="$PATH" HOME="$place/tmp" TMPDIR="$place/tmp" "$place/mount" "$@"
