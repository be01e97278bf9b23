#!/usr/bin/env bash
# What other people's test suites of file systems say of a read-only one, asked of a mount: all system calls of pjdfstest that must fail with
# EROFS, and all tests of LTP that need a read-only file system. (Everything else in them, and all of xfstests, begins by writing.)
# Needs root, autoconf, automake and a C compiler, and checkouts of github.com/pjd/pjdfstest and github.com/linux-test-project/ltp: they are
# copied, and the copies built.
# usage: scripts/suites.sh PJDFSTEST LTP   [CKPTFS=program]
set -euo pipefail
pjd=$(realpath "$1") ltp=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
ckptfs=$(realpath "${CKPTFS:-${CARGO_TARGET_DIR:-$here/target}/release/ckptfs}")
work=$(mktemp -d)
chmod 755 "$work"
cd "$work"
export CKPTFS_STORE=file://$work/store CKPTFS_CACHE=$work/cache
trap 'cd /; "$ckptfs" -q umount "$work/mnt" || true; rm -rf "$work"' EXIT

cp -r "$pjd" pjd && cp -r "$ltp" ltp
(cd pjd && autoreconf -ifs && ./configure -q && make -s pjdfstest) >pjd.log 2>&1 || { tail pjd.log >&2; exit 1; }

printf 'a ==> b\n' | ldb --db=db load --create_if_missing >/dev/null
mkdir mnt
"$ckptfs" -q snapshot --job app db >/dev/null
"$ckptfs" -q mount mnt --daemon --allow-other
shown=$work/mnt/app/chk-1/db/0

# pjdfstest: its own list of calls, `${n0}` being the file system. Of the names below it, the one that a test makes first exists.
calls=0 wrong=0
for file in pjd/tests/*/*.t; do
  while read -r _ errno call; do
    call=${call//'${n0}/${n1}'/$shown/manifest.json}
    call=${call//'${n0}/${n2}'/$shown/new}
    call=${call//'${n0}'/$shown}
    call=${call//'${n1}'/$work/db/CURRENT}
    # What a test makes must not be there, what it takes away must.
    case $call in
      mkdir*|mkfifo*|mknod*|symlink*|*O_CREAT*) call=${call//manifest.json/new} ;;
      rmdir*) call=${call//manifest.json/db} ;;
      *'$'*|*SF_*|*UF_*|chflags*|lchflags*) continue ;;
    esac
    # Several calls stand in one line, parted by colons; each expectation is of the last.
    said=$(cd "$work" && pjd/pjdfstest $call 2>&1 | tail -n 1) || true
    calls=$((calls + 1))
    # A link or rename from another file system may be told that first.
    if [ "$said" != "$errno" ] && ! { [ "$said" = EXDEV ] && [[ $call == *"$work/db"* ]]; }; then
      echo "pjdfstest ${file#pjd/tests/}: $call gives $said, not $errno" >&2
      wrong=$((wrong + 1))
    fi
  done < <(grep -hE '^[[:space:]]*expect EROFS ' "$file" | sed 's/"//g')
done
echo "pjdfstest: $calls calls, $wrong wrong"
[ "$calls" -gt 15 ]

# LTP: its library mounts the read-only file system; here it takes ours, and the names of what lies in it are ours.
cd ltp
sed -i 's|^\tif (mount(dev, mntpoint, fs_type, 0, NULL)) {|\tSAFE_MOUNT(getenv("SHOWN"), mntpoint, NULL, MS_BIND, NULL); context->mntpoint_mounted = 1; return 0;\n&|' lib/tst_test.c
mapfile -t tests < <(grep -rl 'needs_rofs = 1' testcases/kernel/syscalls --include='*.c')
sed -i 's|mntpoint/file"|mntpoint/manifest.json"|; s|"/file"|"/manifest.json"|; s|"mntpoint/dir"|"mntpoint/db"|' "${tests[@]}"
(make -s autotools && ./configure -q && make -s -j2 -C lib) >../ltp.log 2>&1 || { tail ../ltp.log >&2; exit 1; }
passed=0 failed=0
for test in "${tests[@]}"; do
  name=$(basename "$test" .c)
  make -s -C "$(dirname "$test")" "$name" >>../ltp.log 2>&1 || { tail ../ltp.log >&2; exit 1; }
  SHOWN=$shown TMPDIR=$work "$(dirname "$test")/$name" >"../$name.log" 2>&1 || true
  ok=$(grep -c TPASS "../$name.log") || true
  bad=$(grep -cE 'TFAIL|TBROK|TCONF' "../$name.log") || true
  passed=$((passed + ok)) failed=$((failed + bad))
  [ "$bad" -eq 0 ] || grep -E 'TFAIL|TBROK|TCONF' "../$name.log" | sed "s/^/$name: /" >&2
done
echo "LTP: ${#tests[@]} programs, $passed checks passed, $failed not"
[ "$passed" -gt 20 ] && [ "$wrong" -eq 0 ] && [ "$failed" -eq 0 ]
