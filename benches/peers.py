"""What people read a database in a bucket with today. Each peer stores the same directory in its own way over the near endpoint, and shows
it over the far one with a cold cache."""

import os
import shutil
import subprocess
import time

from runs import quiet, until, version

BUCKET = "ckptfs"


def unmount(point, child=None):
    for _ in range(100):
        if not os.path.ismount(point):
            break
        subprocess.run(["fusermount3", "-u", point], stderr=subprocess.DEVNULL)
        time.sleep(0.1)
    if child is not None:
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Rclone:
    """rclone mount, with its cache of files on disk."""

    name = "rclone mount"

    def __init__(self, work, endpoint):
        self.work, self.near = work, endpoint
        self.version = version("rclone", "version")

    def env(self, endpoint):
        kind = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": endpoint, "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "FORCE_PATH_STYLE": "true"}
        return dict(os.environ, RCLONE_CONFIG=os.devnull, **{f"RCLONE_CONFIG_BUCKET_{k}": v for k, v in kind.items()})

    def store(self, directory):
        quiet("rclone", "copy", "--transfers", "8", directory, f"bucket:{BUCKET}/rclone/db", env=self.env(self.near))()

    def mount(self, endpoint, point):
        os.makedirs(point, exist_ok=True)
        self.point, self.cache = point, os.path.join(self.work, "rclone-cache")
        command = ["rclone", "mount", "--read-only", "--vfs-cache-mode", "full", "--cache-dir", self.cache, "--dir-cache-time", "1h", f"bucket:{BUCKET}/rclone", point]
        self.child = subprocess.Popen(command, env=self.env(endpoint), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.ismount(point), self.name, self.child)
        return os.path.join(point, "db")

    def unmount(self):
        unmount(self.point, self.child)
        shutil.rmtree(self.cache, ignore_errors=True)

    def copy(self, endpoint, to):
        quiet("rclone", "copy", "--transfers", "16", "--multi-thread-streams", "4", f"bucket:{BUCKET}/rclone/db", to, env=self.env(endpoint))()

    def drop(self):
        quiet("rclone", "purge", f"bucket:{BUCKET}/rclone", env=self.env(self.near))()


class Juice:
    """JuiceFS, with its metadata in a local SQLite file: no round trip for it, which a real one has."""

    name = "JuiceFS"

    def __init__(self, work, endpoint):
        self.work, self.near = work, endpoint
        self.version = "JuiceFS " + version("juicefs", "version").split()[2]
        self.meta = "sqlite3://" + os.path.join(work, "juice.db")

    def store(self, directory):
        quiet("juicefs", "format", "--storage", "s3", "--bucket", f"{self.near}/{BUCKET}", "--access-key", "any", "--secret-key", "any", "--trash-days", "0", self.meta, "juice")()
        point = os.path.join(self.work, "juice-near")
        self.mount(self.near, point)
        shutil.copytree(directory, os.path.join(point, "db"))
        self.unmount()

    def mount(self, endpoint, point):
        os.makedirs(point, exist_ok=True)
        self.point, self.cache = point, os.path.join(self.work, "juice-cache")
        command = ["juicefs", "mount", "--no-usage-report", "--bucket", f"{endpoint}/{BUCKET}", "--cache-dir", self.cache, "--cache-size", "102400", self.meta, point]
        self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.ismount(point), self.name, self.child)
        return os.path.join(point, "db")

    def unmount(self):
        subprocess.run(["juicefs", "umount", self.point], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        unmount(self.point, self.child)
        shutil.rmtree(self.cache, ignore_errors=True)

    def drop(self):
        point = os.path.join(self.work, "juice-near")
        self.mount(self.near, point)
        shutil.rmtree(os.path.join(point, "db"), ignore_errors=True)
        time.sleep(1)
        self.unmount()


class Restic:
    """restic mount, of a repository in the bucket."""

    name = "restic mount"

    def __init__(self, work, endpoint):
        self.work, self.near = work, endpoint
        self.version = " ".join(version("restic", "version").split()[:2])

    def env(self, endpoint):
        return dict(os.environ, RESTIC_REPOSITORY=f"s3:{endpoint}/{BUCKET}/restic", RESTIC_PASSWORD="bench", RESTIC_CACHE_DIR=os.path.join(self.work, "restic-cache"))

    def store(self, directory):
        env = self.env(self.near)
        quiet("restic", "init", env=env)()
        # Named by its own directory, so that it lies at the top of the snapshot.
        quiet("restic", "backup", os.path.basename(directory), env=env, cwd=os.path.dirname(directory))()
        self.directory = os.path.basename(directory)

    def mount(self, endpoint, point):
        os.makedirs(point, exist_ok=True)
        shutil.rmtree(os.path.join(self.work, "restic-cache"), ignore_errors=True)
        self.point = point
        self.child = subprocess.Popen(["restic", "mount", point], env=self.env(endpoint), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.ismount(point), self.name, self.child)
        below = os.path.join(point, "snapshots", "latest")
        return os.path.join(below, self.directory)

    def unmount(self):
        unmount(self.point, self.child)
        shutil.rmtree(os.path.join(self.work, "restic-cache"), ignore_errors=True)

    def drop(self):
        pass


ALL = (Rclone, Juice, Restic)
