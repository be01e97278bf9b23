#!/usr/bin/env bash
# Makes the Debian package: program, man pages, completions, systemd unit, mount helper, documents. Prints where it is.
# usage: scripts/package.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
need "${build_needs[@]}" dpkg-dev
cd "$here"
export CARGO_TARGET_DIR=$target
version=3.8.0
tools=$target/cargo-deb-$version
[ -x "$tools/bin/cargo-deb" ] || cargo install --quiet --locked --no-default-features --target-dir "$target/cargo-deb-build" --root "$tools" "cargo-deb@$version"

cargo build --release --locked
made=$target/release/package
rm -rf "$made"
mkdir -p "$made/man"
"$target/release/ckptfs" man "$made/man"
"$target/release/ckptfs" completions bash >"$made/ckptfs.bash"
"$target/release/ckptfs" completions zsh >"$made/_ckptfs"
"$target/release/ckptfs" completions fish >"$made/ckptfs.fish"
"$tools/bin/cargo-deb" deb --quiet --no-build --locked --output "$made/" >/dev/null
ls "$made"/*.deb
