"""One section of scripts/bench.sh, in a directory of its own."""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile


def engine(work):
    """The job itself is a program of its own."""
    from runs import MIB, PAIRS

    subprocess.run([os.environ["BENCH_ENGINE"], work, str(MIB), str(PAIRS)], check=True)


def main():
    name = sys.argv[1]
    kind = engine if name == "engine" else getattr(importlib.import_module(name), name)
    home = os.environ.get("BENCH_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../target"))
    os.makedirs(home, exist_ok=True)
    work = tempfile.mkdtemp(prefix="bench-", dir=os.path.realpath(home))
    try:
        kind(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
