# For the other scripts: what this machine lacks, and how everything is built.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}
# The compiler of RocksDB (a cache makes the second build quick); always the same, since another one builds it anew.
export CC="ccache clang" CXX="ccache clang++"

# Installs packages of Debian and Ubuntu; elsewhere says what is needed.
need() {
  local missing=() package as_root=()
  if ! command -v apt-get >/dev/null; then
    for package in clang ccache cc fusermount3; do
      command -v "$package" >/dev/null || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    echo "Not found: ${missing[*]}. This is no Debian or Ubuntu, so please install clang (with libclang), ccache, a C linker and fuse3 by hand; under Debian they are: $*" >&2
    exit 1
  fi
  for package; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
    if ! sudo -n true 2>/dev/null; then
      echo "Please install them first: sudo apt-get install ${missing[*]}" >&2
      exit 1
    fi
  fi
  echo "Installing ${missing[*]}" >&2
  if ! { "${as_root[@]}" apt-get -q update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y --no-install-recommends install "${missing[@]}"; } >"${TMPDIR:-/tmp}/ckptfs-apt.$$" 2>&1 </dev/null; then
    cat "${TMPDIR:-/tmp}/ckptfs-apt.$$" >&2
    exit 1
  fi
  rm -f "${TMPDIR:-/tmp}/ckptfs-apt.$$"
}

command -v cargo >/dev/null || PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
if ! command -v cargo >/dev/null; then
  echo "cargo is not there: install Rust (https://rustup.rs), then try again" >&2
  exit 1
fi
# What every build needs: RocksDB's compiler and its headers, a linker, and fusermount3 for users without root.
build_needs=(clang libclang-dev ccache gcc libc6-dev fuse3)
