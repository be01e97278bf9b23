"""A small change to a large database: what storing it costs, beside other tools."""

import json
import os
import shutil
import statistics
import subprocess

from figures import Section
from rocks import Rocks, library_name
from runs import CKPTFS, MIB, PAIRS, needs_room, quiet, spread, timed, version

CHANGE_MIB = 10


def copy_durably(files, to):
    subprocess.run(["cp", *files, to], check=True)
    for path in [*(os.path.join(to, os.path.basename(f)) for f in files), to]:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def changes(work, mib, tools):
    """Seconds per tool: native, ckptfs, and the others where they are asked for."""
    base = os.path.join(work, f"{mib}")
    os.mkdir(base)
    at = lambda name: os.path.join(base, name)
    rocks = Rocks(at("db"), 64)
    rocks.fill(mib, 64)
    env = dict(os.environ, CKPTFS_STORE="file://" + at("store"), CKPTFS_CACHE=at("cache"))
    runs = {"ckptfs": quiet(CKPTFS, "-q", "snapshot", "--job", "bench", at("checkpoint"), env=env)}
    if tools:
        secret = dict(os.environ, RESTIC_PASSWORD="bench", RESTIC_CACHE_DIR=at("restic-cache"))
        quiet("restic", "-r", at("restic"), "init", env=secret)()
        runs["BackupEngine"] = rocks.backup_engine(at("backup"))
        # Links change the ctime of every file: restic would read them all again.
        runs["restic backup"] = quiet("restic", "-r", at("restic"), "backup", "--ignore-ctime", at("checkpoint"), env=secret)
        runs["rclone sync"] = quiet("rclone", "sync", at("checkpoint"), at("rclone"))
    seconds = {"native": [], **{name: [] for name in runs}}
    for pair in range(PAIRS + 1):
        known = set(os.listdir(rocks.path))
        rocks.fill(CHANGE_MIB, CHANGE_MIB + 1)
        # Old copies stay: removing one would hand its warm pages to whoever writes next.
        shutil.rmtree(at("checkpoint"), ignore_errors=True)
        copied = at(f"copy-{pair}")
        os.mkdir(copied)
        native = timed(lambda: rocks.checkpoint(at("checkpoint")))
        new = [os.path.join(at("checkpoint"), f) for f in os.listdir(at("checkpoint")) if f.endswith(".sst") and f not in known]
        copy = lambda: copy_durably(new, copied) if pair else None
        order = [("native", copy), *runs.items()]
        for name, run in order if pair % 2 else reversed(order):
            took = timed(run)
            # The first round stores the whole database.
            if pair:
                seconds[name].append(took + (native if name == "native" else 0))
    rocks.close()
    shutil.rmtree(base)
    return seconds


def snapshot(work):
    needs_room(work, 13 * MIB)
    versions = [version(CKPTFS, "--version"), version("restic", "version"), version("rclone", "version"), library_name()]
    section = Section("snapshot", f"{CHANGE_MIB} MiB of new tables in a large database, stored durably", versions)
    small = changes(work, MIB, True)
    section.table(f"programs, {MIB} MiB, {PAIRS} pairs; native is RocksDB's checkpoint + cp + fsync", "times native")
    for name, seconds in small.items():
        ratios = [s / n for s, n in zip(seconds, small["native"])]
        section.row(name, ratios, f"{spread([s * 1000 for s in seconds], 0)} ms", 1.5 if name == "ckptfs" else None)
    large = changes(work, 4 * MIB, False)
    section.table(f"the same in {4 * MIB} MiB", "times native")
    for name in ("native", "ckptfs"):
        grown = statistics.median(large[name]) / statistics.median(small[name])
        ratios = [s / n for s, n in zip(large[name], large["native"])]
        section.row(name, ratios, f"{spread([s * 1000 for s in large[name]], 0)} ms, {grown:.2f} times that in {MIB} MiB")
    inside(section, work)
    section.close()


def inside(section, work):
    """In one process, as an engine does it: no program is started, and RocksDB's checkpoint is part of all of them."""
    command = [os.environ["BENCH_SNAPSHOT"], os.path.join(work, "inside"), str(MIB), str(CHANGE_MIB), str(PAIRS)]
    rounds = [json.loads(line) for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()]
    section.table(f"in one process, {MIB} MiB, {PAIRS} pairs", "times BackupEngine")
    for name in rounds[0]:
        ratios = [r[name] / r["BackupEngine"] for r in rounds]
        limit = {"ckptfs": 1.0, "ckptfs, all but the upload": 0.25}.get(name)
        section.row(name, ratios, f"{spread([r[name] * 1000 for r in rounds], 0)} ms", limit)
