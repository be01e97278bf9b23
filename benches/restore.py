"""A host that has nothing, at the end of a link, and a database that grew over many checkpoints: how soon it answers, by every way."""

import json
import os
import random
import shutil
import subprocess
import threading
import time

import peers
from figures import Section
from rocks import Reader, Rocks, library_name
from runs import CKPTFS, MIB, Link, Mount, needs_room, quiet, until, version

CHECKPOINTS = int(os.environ.get("BENCH_CHECKPOINTS", "40"))
GETS = int(os.environ.get("BENCH_GETS", "2000"))
READERS = 16
LINKS = [tuple(link.split("/")) for link in os.environ.get("BENCH_LINKS", "20/1000 1/1000 50/1000 20/0").split()]
PEERS = os.environ.get("BENCH_PEERS", "1") == "1"


class World:
    """The database in the store, whole and by each peer."""

    def __init__(self, work):
        self.work = work
        self.near = dict(os.environ, CKPTFS_STORE=os.environ["CKPTFS_TEST_S3"] + "/cold", CKPTFS_CACHE=self.at("cache"))
        table = max(1, MIB // CHECKPOINTS)
        rocks = Rocks(self.at("db"), table)
        for _ in range(CHECKPOINTS):
            rocks.fill(table, table)
            shutil.rmtree(self.at("checkpoint"), ignore_errors=True)
            rocks.checkpoint(self.at("checkpoint"))
            quiet(CKPTFS, "-q", "snapshot", "--job", "bench", self.at("checkpoint"), env=self.near)()
        self.keys = rocks.written
        rocks.close()
        self.tables = [f for f in os.listdir(self.at("checkpoint")) if f.endswith(".sst")]
        self.size = sum(os.path.getsize(self.at("checkpoint", f)) for f in self.tables)
        self.peers = []
        for kind in peers.ALL if PEERS else ():
            peer = kind(work, os.environ["AWS_ENDPOINT_URL"])
            peer.store(self.at("checkpoint"))
            self.peers.append(peer)
        # Its bytes are in the store now, by every way.
        for name in ("cache", "db", "checkpoint"):
            shutil.rmtree(self.at(name))

    def at(self, *names):
        return os.path.join(self.work, *names)

    def far(self, link, cache):
        shutil.rmtree(self.at(cache), ignore_errors=True)
        return dict(self.near, AWS_ENDPOINT_URL=link.endpoint, CKPTFS_CACHE=self.at(cache))

    def chk(self):
        return f"bench/chk-{CHECKPOINTS}"


def first_get(world, link, path, begun):
    """Seconds until the database answers, since `begun`; GETs; bytes."""
    reader = Reader(path)
    reader.get(world.keys // 3)
    took = time.perf_counter() - begun
    return reader, took, link.counted()


def words(seen, world):
    return f"{seen['requests'].get('GET', 0)} GETs, {100 * seen['bytes'] / world.size:.2f} % of the bytes"


def in_threads(run, parts):
    threads = [threading.Thread(target=run, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def in_place(world, link, section):
    """ckptfs mount: opened where it lies, then random reads; nothing behind, so that what they fetch can be counted."""
    mount = Mount(world.far(link, "cold"), world.at("mnt"), "--no-fetch-behind")
    try:
        link.counted()
        reader, first, seen = first_get(world, link, world.at("mnt", world.chk(), "db/0/db"), time.perf_counter())
        section.row("ckptfs, in place", first, words(seen, world), 1.5)
        took = []

        def read(seed):
            dice = random.Random(seed)
            for _ in range(GETS // READERS):
                begun = time.perf_counter()
                reader.get(dice.randrange(world.keys))
                took.append((time.perf_counter() - begun) * 1000)

        in_threads(read, range(READERS))
        took.sort()
        seen, partial = link.counted(), world.at("cold/partial")
        groups = sum(os.stat(os.path.join(partial, f)).st_blocks * 512 for f in os.listdir(partial))
        section.note(
            f"then {len(took)} random gets by {READERS} readers: p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f} ms;"
            f" {seen['bytes'] / groups:.2f} times the groups that are here were fetched (limit 1.1)"
        )
        reader.close()
    finally:
        mount.close()
    return first


def all_local(world, link):
    """ckptfs mount with a reader, until fetching behind has brought every table."""
    cache = world.at("behind")
    mount = Mount(world.far(link, "behind"), world.at("mnt"))
    try:
        begun = time.perf_counter()
        path = world.at("mnt", world.chk(), "db/0/db")
        reader = Reader(path)
        done = lambda: sum(len(files) for _, _, files in os.walk(os.path.join(cache, "files"))) >= len(world.tables)
        # One key of each table is enough to have it fetched whole.
        step = world.keys // (4 * len(world.tables)) or 1
        keys = range(0, world.keys, step)

        def touch(part):
            for key in part:
                reader.get(key)

        in_threads(touch, [keys[n::READERS] for n in range(READERS)])
        until(done, "fetching behind", seconds=1800)
        took = time.perf_counter() - begun
        reader.close()
    finally:
        mount.close()
    return took


def clone(world, link, section):
    """ckptfs restore: a clone over the mount, opened to read and write; what its first checkpoint sends."""
    env = world.far(link, "clone-cache")
    mount = Mount(env, world.at("mnt"))
    try:
        link.counted()
        begun = time.perf_counter()
        quiet(CKPTFS, "-q", "restore", world.chk(), world.at("clone"), "--job", "clone", "--mount", world.at("mnt"), env=env)()
        made = time.perf_counter() - begun
        clone = Rocks(world.at("clone"), 8)
        opened = time.perf_counter() - begun
        section.row("ckptfs, clone, read and write", opened, f"{made:.2f} s of it restore; {words(link.counted(), world)}", 1.5)
        clone.written = world.keys
        clone.fill(4, 8)
        clone.checkpoint(world.at("clone-checkpoint"))
        new = sum(os.path.getsize(world.at("clone-checkpoint", f)) for f in os.listdir(world.at("clone-checkpoint")) if f.endswith(".sst") and not os.path.islink(world.at("clone-checkpoint", f)))
        clone.close()
        report = subprocess.run([CKPTFS, "-q", "--json", "snapshot", "--job", "clone", world.at("clone-checkpoint")], env=env, check=True, capture_output=True, text=True).stdout
        sent = json.loads(report)["new_bytes"]
        section.note(f"the clone's first checkpoint sends {sent / 2**20:.2f} MiB; RocksDB wrote {new / 2**20:.2f} MiB since (limit: 1 MiB more)")
    finally:
        mount.close()
        for name in ("clone", "clone-checkpoint"):
            shutil.rmtree(world.at(name), ignore_errors=True)


def warm_clone(world, section):
    """The same where all files are local."""
    env = dict(world.near, CKPTFS_CACHE=world.at("warm-cache"))
    quiet(CKPTFS, "-q", "warm", world.chk(), env=env)()
    took = []
    for n in range(5):
        begun = time.perf_counter()
        quiet(CKPTFS, "-q", "restore", world.chk(), world.at(f"local-{n}"), env=env)()
        rocks = Rocks(world.at(f"local-{n}"), 8)
        took.append(time.perf_counter() - begun)
        rocks.close()
        shutil.rmtree(world.at(f"local-{n}"))
    section.table(f"{world.size >> 20} MiB, all local, until it can be read and written", "s")
    section.row("ckptfs, clone", took, "restore and RocksDB's open", 0.5)
    shutil.rmtree(world.at("warm-cache"))


def download(world, link, run, name):
    to = world.at("copy")
    link.counted()
    begun = time.perf_counter()
    run(to)
    reader, took, _ = first_get(world, link, to, begun)
    reader.close()
    shutil.rmtree(to)
    return took


def one_link(world, section, trip, rate):
    link = Link(os.environ["AWS_ENDPOINT_URL"], trip, rate)
    try:
        limit = f"{rate} Mbit/s" if int(rate) else "no limit"
        section.table(f"until the first get, {trip} ms round trip, {limit}", "s")
        first = in_place(world, link, section)
        clone(world, link, section)
        ours = lambda to: quiet(CKPTFS, "-q", "restore", "--copy", world.chk(), to, env=world.far(link, "copy-cache"))()
        whole = download(world, link, ours, "ckptfs")
        section.row("ckptfs, copy and native open", whole, f"{whole / first:.1f} times as long as in place")
        for peer in world.peers:
            link.counted()
            path = peer.mount(link.endpoint, world.at("peer"))
            try:
                reader, took, seen = first_get(world, link, path, time.perf_counter())
                reader.close()
                section.row(peer.name, took, f"{took / first:.1f} times as long; {words(seen, world)}")
            finally:
                peer.unmount()
            if hasattr(peer, "copy"):
                took = download(world, link, lambda to: peer.copy(link.endpoint, to), peer.name)
                section.row("rclone copy and native open", took, f"{took / first:.1f} times as long")
        section.table(f"until all is local, {trip} ms round trip, {limit}", "s")
        behind = all_local(world, link)
        section.row("ckptfs, read meanwhile", behind, f"{behind / whole:.2f} times ckptfs's own download", 1.1 * whole)
        section.row("ckptfs, copy", whole)
    finally:
        link.close()


def restore(work):
    needs_room(work, MIB * (7 if PEERS else 4))
    world = World(work)
    title = f"{world.size >> 20} MiB in {len(world.tables)} tables, grown over {CHECKPOINTS} checkpoints, in S3, from a host that has nothing"
    section = Section("restore", title, [version(CKPTFS, "--version"), *(p.version for p in world.peers), library_name()])
    try:
        for trip, rate in LINKS:
            one_link(world, section, trip, rate)
        warm_clone(world, section)
    finally:
        for peer in world.peers:
            peer.drop()
        section.close()
