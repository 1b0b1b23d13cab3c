"""Builds and runs the tests of ranks on emulated GPUs without one wait at a time, and prints how many runs notice.

    run.py TREE DISK_CACHE [--seeds 20] [--jobs 2] [--limit 120] [TEXT...]

TREE is a copy of the tree, whose files are edited and restored. A run notices if a test fails, the emulated device
reports a fault, or the program crashes or exceeds the limit. Status 1: fewer than 19 of 20 runs notice the removal of a
wait that waits.py does not call needless, the tests fail without a removal, or an edit does not apply.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys

import waits

TESTS = ["waits_test", "ranks_test", "captured_ranks_test"]  # in this order, until one notices
FOLDER = "tests/cuda/ranks"
MIN_NOTICED = 0.95


def edited(wait, text):
    for old, new in wait.edits:
        if text.count(old) != 1:
            sys.exit("%s: occurs %d times in %s, not once:\n%s" % (wait.name, text.count(old), wait.file, old))
        text = text.replace(old, new)
    return text


def build(tree, disk_cache):
    targets = ["//%s:%s" % (FOLDER, test) for test in TESTS]
    done = subprocess.run(["bazel", "build", "--disk_cache=" + disk_cache, "--ui_event_filters=-info", "--noshow_progress",
                           "--show_result=0"] + targets, cwd=tree)
    if done.returncode != 0:
        sys.exit("the build failed")


def run(tree, seed, limit, name=None):
    """Returns what noticed the removal; nothing if all tests passed. The test of that name runs first, alone."""
    env = dict(os.environ, GRADUS_EMULATED_SEED=str(seed), GTEST_FAIL_FAST="1")
    if name:
        env["GTEST_FILTER"] = name + "*"
    for test in TESTS:
        try:
            done = subprocess.run([os.path.join(tree, "bazel-bin", FOLDER, test)], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=env, timeout=limit)
            out, how = done.stdout, "status %d" % done.returncode
            if done.returncode == 0:
                continue
        except subprocess.TimeoutExpired as expired:
            out, how = expired.stdout or b"", "limit"
        out = out.decode(errors="replace")
        failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)", out, re.M)[:1] or re.findall(r"^\[ RUN  *\] (\S+)", out, re.M)
        fault = re.search(r"^gradus emulated device: (.*)", out, re.M)
        noticed_by = failed[-1].rstrip("/0123456789") if failed else test
        return "%s (%s)" % (noticed_by, fault[1] if fault else "wrong" if how == "status 1" else how)
    return run(tree, seed, limit) if name else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree")
    parser.add_argument("disk_cache")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=int, default=120, help="seconds of one program")
    parser.add_argument("texts", nargs="*")
    options = parser.parse_intermixed_args()

    texts = {}
    for wait in waits.WAITS:
        path = os.path.join(options.tree, wait.file)
        if path not in texts:
            with open(path, encoding="utf-8") as file:
                texts[path] = file.read()
        edited(wait, texts[path])

    def write(path, text):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)

    def noticed():
        build(options.tree, options.disk_cache)
        first = run(options.tree, 1, options.limit)
        name = first.split(" ")[0] if first else None
        runs = pool.map(lambda seed: run(options.tree, seed, options.limit, name), range(2, options.seeds + 1))
        return [what for what in [first, *runs] if what]

    wrong = noticed()
    if wrong:
        sys.exit("the tests fail without a removal: " + wrong[0])
    missed = []
    for wait in waits.WAITS:
        if options.texts and not any(text in wait.name for text in options.texts):
            continue
        path = os.path.join(options.tree, wait.file)
        write(path, edited(wait, texts[path]))
        try:
            found = noticed()
        finally:
            write(path, texts[path])
        is_noticed = len(found) >= MIN_NOTICED * options.seeds
        if not is_noticed and not wait.needless:
            missed.append(wait.name)
        usual = collections.Counter(found).most_common(1)
        print("%-62s %2d of %d  %s" % (wait.name, len(found), options.seeds,
                                       wait.needless and "needless: " + wait.needless or usual and usual[0][0] or ""),
              flush=True)
    if missed:
        print("noticed in fewer than %.0f %% of the runs: %s" % (100 * MIN_NOTICED, "; ".join(missed)))
    else:
        print("at least %.0f %% of the runs notice each removal of a wait that is not needless" % (100 * MIN_NOTICED))
    return 1 if missed else 0


sys.exit(main())
