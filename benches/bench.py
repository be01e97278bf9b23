"""Paired runs for scripts/bench.sh. RocksDB is Debian's library, called in this process: its start and the opening of the database
are never timed, while everything of ckptfs is, from exec to exit."""

import ctypes
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint64, c_void_p

CKPTFS = os.path.abspath(os.environ["CKPTFS"])
PAIRS = int(os.environ.get("BENCH_PAIRS", "15"))
MIB = int(os.environ.get("BENCH_MIB", "1100"))
CHANGE_MIB = 10
VALUE = 4096


def library():
    listed = subprocess.run(["ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    return ctypes.CDLL(re.search(r"librocksdb\.so\.\S+", listed).group())


class Rocks:
    """A database through RocksDB's C interface."""

    def __init__(self, path, table_mib):
        self.c = library()
        self.path, self.written = path, 0
        options = self.new("options_create")
        self("options_set_create_if_missing", options, c_ubyte(1))
        self("options_set_compression", options, c_int(0))
        self("options_set_disable_auto_compactions", options, c_int(1))
        self("options_set_level0_slowdown_writes_trigger", options, c_int(10000))
        self("options_set_level0_stop_writes_trigger", options, c_int(20000))
        self("options_set_write_buffer_size", options, c_size_t((table_mib + 2) << 20))
        table = self.new("block_based_options_create")
        self("block_based_options_set_format_version", table, c_int(5))
        self("options_set_block_based_table_factory", options, table)
        self.options = options
        self.db = self.checked("open", options, path.encode())
        self.write_options = self.new("writeoptions_create")
        self("writeoptions_disable_WAL", self.write_options, c_int(1))
        self.flush_options = self.new("flushoptions_create")

    def __call__(self, name, *args):
        return getattr(self.c, "rocksdb_" + name)(*args)

    def new(self, name, *args):
        function = getattr(self.c, "rocksdb_" + name)
        function.restype = c_void_p
        return c_void_p(function(*args))

    def checked(self, name, *args):
        error = c_char_p()
        result = self.new(name, *args, byref(error))
        if error.value:
            raise SystemExit(f"rocksdb_{name}: {error.value.decode()}")
        return result

    def fill(self, mib, table_mib):
        """Incompressible values, flushed to a table as often as `table_mib` says."""
        per_table = (table_mib << 20) // (VALUE + 40)
        for i in range((mib << 20) // (VALUE + 40)):
            key = b"%016d" % self.written
            self.written += 1
            args = (key, c_size_t(16), os.urandom(VALUE), c_size_t(VALUE))
            self.checked("put", self.db, self.write_options, *args)
            if (i + 1) % per_table == 0:
                self.flush()
        self.flush()

    def flush(self):
        self.checked("flush", self.db, self.flush_options)

    def checkpoint(self, to):
        checkpoint = self.checked("checkpoint_object_create", self.db)
        self.checked("checkpoint_create", checkpoint, to.encode(), c_uint64(0))
        self("checkpoint_object_destroy", checkpoint)

    def backup_engine(self, to):
        engine = self.checked("backup_engine_open", self.options, to.encode())
        return lambda: self.checked("backup_engine_create_new_backup", engine, self.db)

    def close(self):
        self("close", self.db)


def timed(run):
    os.sync()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def quiet(*args, **more):
    return lambda: subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


def spread(values, digits=2):
    values = sorted(values)
    quarter = len(values) // 4
    low, high = values[quarter], values[-1 - quarter]
    return f"{statistics.median(values):.{digits}f} [{low:.{digits}f}..{high:.{digits}f}]"


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
    versions = {"ckptfs": [CKPTFS, "--version"], "restic": ["restic", "version"], "rclone": ["rclone", "version"]}
    for command in versions.values():
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0])
    print(re.search(r"librocksdb\.so\.\S+", subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout).group())
    small = changes(work, MIB, True)
    print(f"\n{CHANGE_MIB} MiB of new tables in {MIB} MiB; {PAIRS} pairs, median [quartiles]. native: RocksDB's checkpoint + cp + fsync")
    print(f"{'':16}{'milliseconds':28}times native")
    for name, seconds in small.items():
        ratios = [s / n for s, n in zip(seconds, small["native"])]
        print(f"{name:16}{spread([s * 1000 for s in seconds], 0):28}{spread(ratios)}")
    large = changes(work, 4 * MIB, False)
    print(f"\nthe same in {4 * MIB} MiB")
    for name in ("native", "ckptfs"):
        grown = statistics.median(large[name]) / statistics.median(small[name])
        print(f"{name:16}{spread([s * 1000 for s in large[name]], 0):28}{grown:.2f} times that in {MIB} MiB")
    ratios = [s / n for s, n in zip(large["ckptfs"], large["native"])]
    print(f"{'ckptfs':16}{'':28}{spread(ratios)} times native")


def fio(path, kind):
    how = ["--rw=read", "--bs=1M", "--loops=4"]
    if kind == "random":
        how = ["--rw=randread", "--bs=4k", "--number_ios=150000", "--norandommap", "--randrepeat=0"]
    common = ["--name=bench", f"--filename={path}", "--size=256M", "--readonly", "--ioengine=psync", "--invalidate=0"]
    output = subprocess.run(["fio", *common, *how, "--output-format=json"], check=True, capture_output=True).stdout
    read = json.loads(output)["jobs"][0]["read"]
    return read["bw"] / 1024 if kind == "sequential" else read["iops"]


def bytes_read(pid):
    with open(f"/proc/{pid}/io") as io:
        return int(io.readline().split()[1])


def mount(work):
    print(subprocess.run([CKPTFS, "--version"], check=True, capture_output=True, text=True).stdout.strip())
    print(subprocess.run(["fio", "--version"], check=True, capture_output=True, text=True).stdout.strip(), os.uname().release)
    at = lambda name: os.path.join(work, name)
    rocks = Rocks(at("db"), 300)
    rocks.fill(280, 300)
    rocks.checkpoint(at("checkpoint"))
    rocks.close()
    env = dict(os.environ, CKPTFS_STORE="file://" + at("store"), CKPTFS_CACHE=at("cache"))
    quiet(CKPTFS, "-q", "snapshot", "--job", "bench", at("checkpoint"), env=env)()
    table = max((f for f in os.listdir(at("checkpoint")) if f.endswith(".sst")), key=lambda f: os.path.getsize(at("checkpoint/" + f)))
    os.mkdir(at("mnt"))
    native, mounted = at("checkpoint/" + table), at("mnt/bench/chk-1/db/0/db/" + table)
    print(f"warm reads of 256 MiB; {PAIRS} pairs, median [quartiles]; sequential in MiB/s, random 4 KiB in reads/s")
    for mode in ([], ["--no-passthrough"]):
        daemon = subprocess.Popen([CKPTFS, "-q", "mount", at("mnt"), *mode], env=env)
        try:
            while not os.path.exists(mounted):
                if daemon.poll() is not None:
                    raise SystemExit("the mount did not come up")
                time.sleep(0.02)
            for path in (native, mounted):
                with open(path, "rb") as file:
                    while file.read(1 << 20):
                        pass
            for kind in ("sequential", "random"):
                results, before = {native: [], mounted: []}, bytes_read(daemon.pid)
                for pair in range(PAIRS):
                    for path in (native, mounted) if pair % 2 else (mounted, native):
                        results[path].append(fio(path, kind))
                moved = bytes_read(daemon.pid) - before
                ratios = [m / n for m, n in zip(results[mounted], results[native])]
                name = f"{kind}{' without passthrough' if mode else ''}"
                print(f"{name:32}native {spread(results[native], 0):28}mount {spread(results[mounted], 0):28}ratio {spread(ratios)}  daemon read {moved} bytes")
        finally:
            quiet(CKPTFS, "-q", "umount", at("mnt"), env=env)()
            daemon.wait()


def measured(env, *args):
    """Seconds and the most memory in MiB of one run of the program."""
    begun = time.perf_counter()
    child = subprocess.Popen([CKPTFS, "-q", *args], env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"ckptfs {' '.join(args)} failed")
    return time.perf_counter() - begun, used.ru_maxrss / 1024


def sweep(work):
    print(subprocess.run([CKPTFS, "--version"], check=True, capture_output=True, text=True).stdout.strip())
    make = lambda name, *numbers: subprocess.run([os.environ["MAKE_STORE"], os.path.join(work, name), *map(str, numbers)], check=True, capture_output=True, text=True).stdout.strip()
    env = lambda name: dict(os.environ, CKPTFS_STORE="file://" + os.path.join(work, name), CKPTFS_CACHE=os.path.join(work, name + "-cache"))
    make("large", 1000, 1000, 0)
    for how in ("manifests from the store", "manifests from the cache"):
        seconds, memory = measured(env("large"), "gc")
        print(f"gc of 1000 checkpoints, 1000000 file entries, {how}: {seconds:.1f} s, {memory:.0f} MiB")
    make("without", 10, 1000, 0)
    print("100000 forgotten numbers,", make("with", 10, 1000, 100000), "beside the same job without; median [quartiles] of", PAIRS, "pairs")
    for verb in (["ls", "app"], ["gc"], ["path", "app/latest"]):
        ratios, bare = [], []
        for pair in range(PAIRS + 1):
            took = {name: measured(env(name), *verb)[0] for name in (("with", "without") if pair % 2 else ("without", "with"))}
            if pair:
                ratios.append(took["with"] / took["without"])
                bare.append(took["without"] * 1000)
        print(f"{' '.join(verb):18}without {spread(bare, 1):28}ms  with {spread(ratios)} times that")


class Reader:
    """A database that is only read, with every table opened at once."""

    def __init__(self, path):
        self.c, error = library(), c_char_p()
        call = lambda name, *args: self.typed(name, c_void_p)(*args)
        options = c_void_p(call("options_create"))
        call("options_set_max_open_files", options, c_int(-1))
        self.options = c_void_p(call("readoptions_create"))
        self.db = c_void_p(call("open_for_read_only", options, path.encode(), c_ubyte(0), byref(error)))
        if error.value:
            raise SystemExit(f"cannot open {path}: {error.value.decode()}")

    def typed(self, name, result):
        function = getattr(self.c, "rocksdb_" + name)
        function.restype = result
        return function

    def get(self, number):
        length, error = c_size_t(), c_char_p()
        key = b"%016d" % number
        value = self.typed("get", c_void_p)(self.db, self.options, key, c_size_t(16), byref(length), byref(error))
        if error.value or length.value != VALUE:
            raise SystemExit(f"key {number}: {error.value or length.value}")
        self.typed("free", None)(c_void_p(value))

    def close(self):
        self.typed("close", None)(self.db)


def cold(work):
    """A host that has nothing, at the end of a link, and a database that grew over BENCH_CHECKPOINTS checkpoints."""
    at = lambda name: os.path.join(work, name)
    checkpoints, gets, readers = int(os.environ.get("BENCH_CHECKPOINTS", "40")), int(os.environ.get("BENCH_GETS", "2000")), 16
    trip, rate = os.environ.get("BENCH_ROUND_TRIP_MS", "20"), os.environ.get("BENCH_MBIT", "1000")
    near = dict(os.environ, CKPTFS_STORE=os.environ["CKPTFS_TEST_S3"] + "/cold", CKPTFS_CACHE=at("cache"))
    table = max(1, MIB // checkpoints)
    rocks = Rocks(at("db"), table)
    for _ in range(checkpoints):
        rocks.fill(table, table)
        shutil.rmtree(at("checkpoint"), ignore_errors=True)
        rocks.checkpoint(at("checkpoint"))
        quiet(CKPTFS, "-q", "snapshot", "--job", "bench", at("checkpoint"), env=near)()
    keys = rocks.written
    rocks.close()
    tables = [f for f in os.listdir(at("checkpoint")) if f.endswith(".sst")]
    size = sum(os.path.getsize(os.path.join(at("checkpoint"), f)) for f in tables)
    proxy = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "proxy.py"), re.sub("^http://", "", os.environ["AWS_ENDPOINT_URL"]), trip, rate]
    link = subprocess.Popen(proxy, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    far = dict(near, AWS_ENDPOINT_URL="http://127.0.0.1:" + link.stdout.readline().strip())

    def counted():
        link.stdin.write("\n")
        link.stdin.flush()
        return json.loads(link.stdout.readline())

    print(subprocess.run([CKPTFS, "--version"], check=True, capture_output=True, text=True).stdout.strip())
    print(f"{size >> 20} MiB in {len(tables)} tables, grown over {checkpoints} checkpoints; S3 behind {trip} ms and {rate} Mbit/s; one run")
    os.mkdir(at("mnt"))
    daemon = subprocess.Popen([CKPTFS, "-q", "mount", "--no-fetch-behind", at("mnt")], env=dict(far, CKPTFS_CACHE=at("cold")))
    try:
        while not os.path.ismount(at("mnt")):
            if daemon.poll() is not None:
                raise SystemExit("the mount did not come up")
            time.sleep(0.02)
        counted()
        begun = time.perf_counter()
        reader = Reader(at(f"mnt/bench/chk-{checkpoints}/db/0/db"))
        opened = time.perf_counter() - begun
        reader.get(keys // 3)
        first = time.perf_counter() - begun
        seen = counted()
        print(f"opened after {opened:.2f} s, first get after {first:.2f} s: {seen['requests'].get('GET', 0)} GETs, {100 * seen['bytes'] / size:.2f} % of the bytes")
        took = []

        def read(seed):
            dice = random.Random(seed)
            for _ in range(gets // readers):
                begun = time.perf_counter()
                reader.get(dice.randrange(keys))
                took.append((time.perf_counter() - begun) * 1000)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took.sort()
        seen, partial = counted(), at("cold/partial")
        groups = sum(os.stat(os.path.join(partial, f)).st_blocks * 512 for f in os.listdir(partial))
        print(f"{len(took)} random gets by {readers} readers: p50 {took[len(took) // 2]:.0f} ms, p99 {took[len(took) * 99 // 100]:.0f} ms; {seen['bytes'] / groups:.2f} times the groups that are here were fetched")
        reader.close()
        begun = time.perf_counter()
        quiet(CKPTFS, "-q", "restore", "--copy", f"bench/chk-{checkpoints}", at("copy"), env=dict(far, CKPTFS_CACHE=at("copy-cache")))()
        reader = Reader(at("copy"))
        reader.get(keys // 3)
        whole = time.perf_counter() - begun
        reader.close()
        print(f"a full parallel download and a native open: {whole:.2f} s, {whole / first:.1f} times as long until the first get")
    finally:
        quiet(CKPTFS, "-q", "umount", at("mnt"), env=far)()
        daemon.wait()
        link.kill()
        link.wait()


def engine(work):
    """The job itself is a program of its own."""
    subprocess.run([os.environ["BENCH_ENGINE"], work, str(MIB), str(PAIRS)], check=True)


def main():
    kind = {"snapshot": snapshot, "mount": mount, "sweep": sweep, "engine": engine, "cold": cold}[sys.argv[1]]
    home = os.environ.get("BENCH_DIR", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../target"))
    os.makedirs(home, exist_ok=True)
    work = tempfile.mkdtemp(prefix="bench-", dir=os.path.realpath(home))
    try:
        kind(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
