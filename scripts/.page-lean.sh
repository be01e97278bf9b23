#!/usr/bin/env bash
# Opens the status page in headless Chromium against a store with 200 checkpoints: its figures are those of --json, each view loads in
# under 100 ms, axe finds nothing that keeps somebody from reading it, and nothing comes from elsewhere. Leaves screenshots in DIR.
# usage: scripts/page.sh [DIR]   (default: the target directory)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
node=()
# Others than Debian's bring both in one package.
command -v npm >/dev/null || node=(nodejs npm)
need "${build_needs[@]}" rocksdb-tools chromium "${node[@]}"
shots=${1:-$target/page-shots}
mkdir -p "$shots"
shots=$(cd "$shots" && pwd)
cd "$here"
export CARGO_TARGET_DIR=$target

tools=$target/page-tools
if [ ! -d "$tools/node_modules/axe-core" ]; then
  mkdir -p "$tools"
  npm install --silent --no-audit --no-fund --prefix "$tools" playwright-core@1.64.1 axe-core@4.11.0
fi

room=$(mktemp -d)
mounted=
end() {
  [ -z "$mounted" ] || "$target/release/ckptfs" umount "$room/mnt" || true
  rm -rf "$room"
}
trap end EXIT
export CKPTFS_STORE=file://$room/store CKPTFS_CACHE=$room/cache
mkdir "$room/mnt"
ckptfs() { "$target/release/ckptfs" --quiet "$@"; }
# A database that grows: each checkpoint has some more rows.
for n in $(seq 200); do
  for row in 1 2 3; do
    head -c $((n % 7 * 3000 + 500)) /dev/urandom | base64 -w 0 | sed "s/^/key-$n-$row : /"
  done | sed 's/ : / ==> /' | ldb --db="$room/db" --create_if_missing load >/dev/null
  ckptfs snapshot --job orders --operator "count words" "$room/db" >/dev/null
done
n=$(ckptfs open --job orders --expect "count words=1")
ckptfs abort --job orders --checkpoint "$n" --reason "the third subtask ran out of memory"
ckptfs expire orders/chk-1 && ckptfs expire orders/chk-2
ckptfs pin orders/chk-100 --note "for the auditors" >/dev/null
ckptfs --json ls orders >"$room/ls.json"
ckptfs --json du >"$room/du.json"
ckptfs --json gc >"$room/gc.json"

"$target/release/ckptfs" mount --daemon --listen 19464 "$room/mnt"
mounted=yes
cat "$room"/mnt/orders/latest/*/0/db/*.sst >/dev/null
NODE_PATH=$tools/node_modules node scripts/.page-lean.cjs http://127.0.0.1:19464 "$room" "$shots"
