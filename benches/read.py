"""Warm reads through a mount beside the same reads without it."""

import json
import os
import re
import statistics
import subprocess

import peers
from figures import Section
from rocks import library_name
from runs import CKPTFS, PAIRS, Mount, needs_room, quiet, version

SECONDS = 2
KINDS = {
    "sequential": ["--rw=read", "--bs=1M", "--ioengine=psync"],
    "random 4 KiB": ["--rw=randread", "--bs=4k", "--norandommap", "--randrepeat=0", "--ioengine=psync"],
    "mmap, sequential": ["--rw=read", "--bs=64k", "--ioengine=mmap"],
}
LIMITS = {"sequential": 0.97, "random 4 KiB": 0.85, "mmap, sequential": 0.97, "RocksDB gets": 0.95, "RocksDB scan": 0.95}
SERVED = 0.8
# Of the peers, which are far from the line.
FEW = max(3, PAIRS // 5)


def fio(path, kind):
    common = ["--name=bench", f"--filename={path}", "--size=256M", "--readonly", "--invalidate=0", "--time_based", f"--runtime={SECONDS}", "--output-format=json"]
    output = subprocess.run(["fio", *common, *KINDS[kind]], check=True, capture_output=True).stdout
    return json.loads(output)["jobs"][0]["read"]["iops"]


def db_bench(directory, keys, kind):
    """Operations per second of RocksDB's own benchmark; its log goes elsewhere, the mount takes none."""
    what = {"RocksDB gets": ["--benchmarks=readrandom", f"--duration={SECONDS}"], "RocksDB scan": ["--benchmarks=" + ",".join(6 * ["readseq"]), f"--reads={keys}"]}[kind]
    command = ["db_bench", f"--db={directory}", "--use_existing_db=1", "--readonly=1", f"--num={keys}", "--key_size=16", "--value_size=4096", "--threads=1", "--cache_size=8388608", "--compression_type=none", "--open_files=-1", *what]
    said = subprocess.run(command, check=True, capture_output=True, text=True)
    return statistics.median(float(n) for n in re.findall(r"micros/op (\d+) ops/sec", said.stdout))


def warm(directory):
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as file:
            while file.read(1 << 20):
                pass


def compare(section, native, mounted, table, keys, who, kinds, limits, pairs):
    for directory in (native, mounted):
        warm(directory)
    for kind in kinds:
        one = (lambda d: fio(os.path.join(d, table), kind)) if kind in KINDS else (lambda d: db_bench(d, keys, kind))
        ratios, bare = [], []
        for pair in range(pairs):
            got = {d: one(d) for d in ((native, mounted) if pair % 2 else (mounted, native))}
            ratios.append(got[mounted] / got[native])
            bare.append(got[native])
        section.row(f"{who}, {kind}", ratios, f"native {sorted(bare)[len(bare) // 2]:.0f}/s", limits.get(kind) if limits else None)


def read(work):
    needs_room(work, 2500)
    at = lambda name: os.path.join(work, name)
    native, keys = at("db"), 68_000
    fill = ["--benchmarks=fillseq,flush", f"--db={native}", f"--num={keys}", "--key_size=16", "--value_size=4096", "--disable_wal=1", "--write_buffer_size=400000000", "--compression_type=none"]
    subprocess.run(["db_bench", *fill], check=True, capture_output=True)
    table = max((f for f in os.listdir(native) if f.endswith(".sst")), key=lambda f: os.path.getsize(os.path.join(native, f)))
    others = [kind(work, os.environ["AWS_ENDPOINT_URL"]) for kind in peers.ALL]
    section = Section("read", "warm reads of a RocksDB table through a mount", [version(CKPTFS, "--version"), version("fio", "--version"), *(p.version for p in others), library_name()])
    env = dict(os.environ, CKPTFS_STORE="file://" + at("store"), CKPTFS_CACHE=at("cache"))
    quiet(CKPTFS, "-q", "snapshot", "--job", "bench", native, env=env)()
    every = [*KINDS, "RocksDB gets", "RocksDB scan"]
    for options, who in (([], "ckptfs"), (["--no-passthrough"], "ckptfs, no passthrough")):
        section.table(f"{who}: speed beside the native file system, {PAIRS} pairs", "times native", "more")
        mount = Mount(env, at("mnt"), *options)
        try:
            limits = LIMITS if not options else {kind: SERVED for kind in every}
            compare(section, native, at("mnt/bench/chk-1/db/0/db"), table, keys, who, every, limits, PAIRS)
        finally:
            mount.close()
    for peer in others:
        section.table(f"{peer.name}: speed beside the native file system, {FEW} pairs", "times native", "more")
        peer.store(native)
        mounted = peer.mount(os.environ["AWS_ENDPOINT_URL"], at("peer"))
        try:
            compare(section, native, mounted, table, keys, peer.name, every, None, FEW)
        finally:
            peer.unmount()
            peer.drop()
    section.close()
