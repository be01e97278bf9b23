"""How things are run and timed."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

CKPTFS = os.path.abspath(os.environ["CKPTFS"])
PAIRS = int(os.environ.get("BENCH_PAIRS", "15"))
MIB = int(os.environ.get("BENCH_MIB", "1100"))
HERE = os.path.dirname(os.path.abspath(__file__))


def timed(run):
    os.sync()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def quiet(*args, **more):
    def run():
        done = subprocess.run(args, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)
        if done.returncode:
            raise SystemExit(f"{' '.join(args)} ended with {done.returncode}: {done.stderr[-2000:]}")

    return run


def version(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0].strip()


def spread(values, digits=2):
    """The median and both quartiles."""
    values = sorted(values)
    quarter = len(values) // 4
    low, high = values[quarter], values[-1 - quarter]
    return f"{statistics.median(values):.{digits}f} [{low:.{digits}f}..{high:.{digits}f}]"


def make_store(path, *numbers):
    command = [os.environ["MAKE_STORE"], path, *map(str, numbers)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def measured(env, *args):
    """Seconds and the most memory in MiB of one run of the program."""
    begun = time.perf_counter()
    child = subprocess.Popen([CKPTFS, "-q", *args], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"ckptfs {' '.join(args)} failed")
    return time.perf_counter() - begun, used.ru_maxrss / 1024


def needs_room(path, mib):
    """Ends at once where the disk is too small, not in the middle."""
    free = shutil.disk_usage(path).free >> 20
    if free < mib:
        raise SystemExit(f"{path} has {free} MiB free, and this needs {mib}: make room, name another place with BENCH_DIR, or a smaller BENCH_MIB")


def until(ready, what, child=None, seconds=120):
    begun = time.perf_counter()
    while not ready():
        if child is not None and child.poll() is not None:
            raise SystemExit(f"{what} ended with {child.returncode}")
        if time.perf_counter() - begun > seconds:
            raise SystemExit(f"{what} did not come up within {seconds} s")
        time.sleep(0.01)


class Mount:
    """A mount of ckptfs; its daemon is our child."""

    def __init__(self, env, point, *options):
        os.makedirs(point, exist_ok=True)
        self.env, self.point = env, point
        self.daemon = subprocess.Popen([CKPTFS, "-q", "mount", *options, point], env=env)
        until(lambda: os.path.ismount(point), "ckptfs mount", self.daemon)

    def close(self):
        quiet(CKPTFS, "-q", "umount", self.point, env=self.env)()
        self.daemon.wait()


class Link:
    """The S3 server at the end of a link; see proxy.py."""

    def __init__(self, server, round_trip_ms, mbit):
        command = [sys.executable, os.path.join(HERE, "proxy.py"), re.sub("^http://", "", server), str(round_trip_ms), str(mbit)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = "http://127.0.0.1:" + self.child.stdout.readline().strip()

    def counted(self):
        """Requests by method and bytes of answers since the last time."""
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        return json.loads(self.child.stdout.readline())

    def close(self):
        self.child.kill()
        self.child.wait()
