"""Tries the changes of docs/ENGINE.md: each in a copy of the source, built, its test run. A change whose test passes is told, and is a failure.

With --together, changes of different files and different tests are built at once, which is quicker, and says less: a test may then fail
for another change's sake.
"""
import os
import re
import shutil
import subprocess
import sys

# The crate alone is built without optimisation, which takes seconds; what it depends on stays as it was built.
QUICK = ["--config", "profile.release.package.ckptfs.opt-level=0"]
ROW = re.compile(r"^\| (.+?) \| `([\w:]+)` \| `([\w/.]+)` \| (?:`(.+)`) -> (?:`(.+)`|\(nothing\)) \|$")


def rows():
    for line in open("docs/ENGINE.md", encoding="utf-8"):
        found = ROW.match(line.rstrip("\n"))
        if found:
            rule, test, path, old, new = found.groups()
            yield rule, test, path, old.replace("\\|", "|"), (new or "").replace("\\|", "|")


def batches(all_rows, together):
    if not together:
        return [[row] for row in all_rows]
    out = []
    for row in all_rows:
        fits = lambda batch: all(row[1] != r[1] and row[2] != r[2] for r in batch)
        home = next((batch for batch in out if fits(batch)), None)
        if home is None:
            out.append([row])
        else:
            home.append(row)
    return out


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    chosen = [r for r in rows() if not words or any(r[0].startswith(w + " ") for w in words)]
    copy = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "rules")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", ".", copy], check=True)
    survived = []
    for batch in batches(chosen, "--together" in sys.argv):
        before = {}
        for rule, _, path, old, new in batch:
            file = os.path.join(copy, "src", path)
            text = open(file, encoding="utf-8").read()
            if text.count(old) != 1:
                sys.exit(f"{rule}: this stands {text.count(old)} times in {path}: {old}")
            before.setdefault(file, text)
            open(file, "w", encoding="utf-8").write(text.replace(old, new))
        build = ["cargo", "test", "--release", "--locked", "--lib", "--no-run", "--message-format", "short", *QUICK]
        built = subprocess.run(build, cwd=copy, capture_output=True, text=True)
        program = re.search(r"Executable .*\((.+)\)", built.stderr)
        if built.returncode or not program:
            sys.exit(f"{[r[0] for r in batch]} does not build:\n{built.stderr[-3000:]}")
        for rule, test, path, old, new in batch:
            try:
                run = subprocess.run([os.path.join(copy, program[1]), "--exact", test], cwd=copy, capture_output=True, text=True, timeout=120)
                failed = run.returncode != 0
                if not failed and "1 passed" not in run.stdout:
                    sys.exit(f"{rule}: there is no test {test}")
            except subprocess.TimeoutExpired:
                failed = True
            print(f"{'found' if failed else 'SURVIVED'}\t{rule}\t{test}", flush=True)
            if not failed:
                survived.append(rule)
        for file, text in before.items():
            open(file, "w", encoding="utf-8").write(text)
    print(f"{len(chosen)} changes, {len(survived)} survived")
    sys.exit(1 if survived or not chosen else 0)


main()
