"""Planning a sweep, and what forgotten numbers cost."""

import os

from runs import CKPTFS, PAIRS, make_store, measured, spread, version


def sweep(work):
    print(version(CKPTFS, "--version"))
    make = lambda name, *numbers: make_store(os.path.join(work, name), *numbers)
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
