#!/usr/bin/env bash
# Does what the README tells a newcomer, line by line, in a fresh Debian without anything of ours but the package: from installing it to a
# database that was restored. As root.
# usage: scripts/newcomer.sh
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
if [ "$(id -u)" -ne 0 ]; then
  echo "scripts/newcomer.sh makes a system of its own and mounts in it: run it as root" >&2
  exit 1
fi
need "${build_needs[@]}" debootstrap util-linux
cd "$here"
package=$(scripts/package.sh)

# What the machine itself installs from; kept between runs.
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | awk -v s="$suite" '$2 == s && $3 == "main" { print $1; exit }')
# The user of the packages of this system has a database already, and a tool to look at it.
with=ca-certificates,fuse3,rocksdb-tools
fresh=$target/newcomer-$suite.tar
room=$(mktemp -d)
trap 'rm -rf --one-file-system "$room"' EXIT
if [ -f "$fresh" ]; then
  mkdir "$room/system"
  tar -xpf "$fresh" -C "$room/system"
else
  if ! debootstrap --variant=minbase --include="$with" "$suite" "$room/system" "${mirror%/}" >"$room/log" 2>&1; then
    tail -n 20 "$room/log" >&2
    exit 1
  fi
  rm -rf "$room/system/var/cache/apt/archives" "$room/system/var/lib/apt/lists"
  tar --one-file-system -cpf "$fresh.part" -C "$room/system" .
  mv "$fresh.part" "$fresh"
fi
cp "$package" "$room/system/root/"

# The lines of the README, each with its number, as one script.
awk '/^<!-- newcomer -->$/ { on = 1; next } on && /^```$/ { exit } on && !/^```/ { print }' README.md |
  sed 's/ *#.*//' | grep -v '^$' >"$room/lines"
count=$(wc -l <"$room/lines")
if [ "$count" -lt 5 ] || [ "$count" -gt 10 ]; then
  echo "the README has $count commands for a newcomer: ten are enough, and fewer than five are none" >&2
  exit 1
fi
{
  echo "set -euo pipefail; cd /root"
  echo 'for n in $(seq 1000); do echo "key$n ==> value$n"; done | ldb --db=mydb --create_if_missing load'
  echo "PS4='\$ '; set -x"
  cat "$room/lines"
  echo "{ set +x; } 2>/dev/null"
  echo 'test "$(ldb --db=restored scan | wc -l)" = 1000'
  echo 'test "$(ldb --db=mydb scan | md5sum)" = "$(ldb --db=restored scan | md5sum)"'
} >"$room/system/root/path.sh"
# Mounts and processes of the new system end with it.
unshare --mount --pid --fork --kill-child bash -c '
  set -e
  mount --rbind /dev "$1/dev"
  mount -t proc proc "$1/proc"
  exec chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive bash /root/path.sh' - "$room/system"
echo "a newcomer has come from the package to a restored database in $count commands"
