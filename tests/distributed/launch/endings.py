#!/usr/bin/env python3
"""Jobs whose ranks end in order, many times over: python3 tests/distributed/launch/endings.py [--runs N] [--jobs N]

By dist::launcher and gradus-run, with 8, 16 and 64 ranks that end with group_barrier, with destroy_process_group, or by
returning. Each job must end with status 0. Builds nothing: bazel build //tests/distributed/launch:launch_program
//distributed/launch:gradus-run.
"""
import argparse
import concurrent.futures
import itertools
import os
import subprocess
import sys

BIN = os.path.join(os.path.dirname(__file__), "..", "..", "..", "bazel-bin")
PROGRAM = os.path.join(BIN, "tests", "distributed", "launch", "launch_program")
GRADUS_RUN = os.path.join(BIN, "distributed", "launch", "gradus-run")
RANKS = (8, 8, 16, 16, 64)  # as often as they stand here


def run(case):
    launcher, ranks, how = case
    command = [PROGRAM, "ends-in-order", f"{ranks} {how}"]
    if launcher == "gradus-run":
        command = [GRADUS_RUN, "--nproc-per-node", str(ranks), PROGRAM, "ends-in-order", f"0 {how}"]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    return case, done.returncode, done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1, help="jobs at the same time")
    args = parser.parse_args()
    cases = itertools.cycle(itertools.product(("launcher", "gradus-run"), RANKS, ("barrier", "destroy", "return")))
    counts, failed = {}, {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for case, status, text in pool.map(run, itertools.islice(cases, args.runs)):
            counts[case] = counts.get(case, 0) + 1
            if status:
                failed[case] = failed.get(case, 0) + 1
                print(f"FAILED {case}: status {status}\n{text}", flush=True)
    for case in sorted(counts, key=str):
        print(f"{case[0]:10} {case[1]:2} ranks, {case[2]:7} {failed.get(case, 0)} of {counts[case]} failed")
    print(f"{sum(failed.values())} of {args.runs} failed")
    sys.exit(bool(failed))


main()
