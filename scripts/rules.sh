#!/bin/sh
# Tries the changes of docs/ENGINE.md, whose tests must fail: all of them (half an hour), or those of some rules.
#   scripts/rules.sh [--together] [A5 ...]
set -eu
cd "$(dirname "$0")/.."
exec python3 benches/rules.py "$@"
