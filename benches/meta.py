"""Names and attributes: many checkpoints, and directories with many files."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request

from figures import Section
from runs import CKPTFS, PAIRS, Mount, make_store, version


def memory(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


def find(path):
    begun = time.perf_counter()
    found = subprocess.run(["find", path], check=True, capture_output=True).stdout.count(b"\n")
    return found, time.perf_counter() - begun


def ls(path):
    begun = time.perf_counter()
    subprocess.run(["ls", "-lR", path], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def scrape(port):
    begun = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.read().endswith(b"# EOF\n")
    return time.perf_counter() - begun


def meta(work):
    at = lambda *names: os.path.join(work, *names)
    section = Section("meta", "names and attributes", [version(CKPTFS, "--version")])
    env = lambda name: dict(os.environ, CKPTFS_STORE="file://" + at(name), CKPTFS_CACHE=at(name + "-cache"))

    make_store(at("many"), 1000, 1000, 0)
    section.table("1,000 checkpoints with 1,000,000 file entries", "s")
    begun = time.perf_counter()
    port = free_port()
    mount = Mount(env("many"), at("mnt"), "--listen", str(port))
    try:
        os.listdir(at("mnt"))
        section.row("ckptfs, mount ready", time.perf_counter() - begun, limit=1.0)
        found, took = find(at("mnt"))
        section.row("ckptfs, find over everything", took, f"{found} entries, {found / took:.0f}/s")
        scrape(port)
        scrapes = [scrape(port) for _ in range(PAIRS)]
        section.row("ckptfs, one scrape of the metrics then", scrapes, f"the slowest {max(scrapes) * 1000:.1f} ms", 0.05)
        section.note(f"the daemon has {memory(mount.daemon.pid):.0f} MiB then (limit 200)")
    finally:
        mount.close()

    make_store(at("wide"), 1, 10000, 0, 10)
    rates = []
    for n in range(3):
        shutil.rmtree(at("wide-cache"), ignore_errors=True)
        mount = Mount(env("wide"), at("mnt"))
        try:
            found, took = find(at("mnt/app/chk-1"))
            rates.append(found / took)
        finally:
            mount.close()
    section.table("one checkpoint of 10 x 10,000 entries, cold, manifests included", "entries/s", "more")
    section.row("ckptfs, find", rates, f"{found} entries", 50_000)

    # The same tree on the disk itself, with files that take no blocks.
    mount = Mount(env("wide"), at("mnt"))
    try:
        for directory, _, files in os.walk(at("mnt/app/chk-1")):
            there = at("tree", os.path.relpath(directory, at("mnt")))
            os.makedirs(there)
            for name in files:
                with open(os.path.join(there, name), "w") as file:
                    file.truncate(os.lstat(os.path.join(directory, name)).st_size)
        pair = {"mounted": at("mnt/app/chk-1"), "native": at("tree/app/chk-1")}
        for path in pair.values():
            ls(path)
        ratios = []
        for n in range(PAIRS):
            took = {name: ls(path) for name, path in (pair.items() if n % 2 else reversed(pair.items()))}
            ratios.append(took["native"] / took["mounted"])
        section.table("ls -lR of it, again", "times ext4's speed", "more")
        section.row("ckptfs", ratios, limit=0.9)
    finally:
        mount.close()
    section.close()
