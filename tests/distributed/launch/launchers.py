#!/usr/bin/env python3
"""Ranks that others start: torchrun, mpirun, plain processes; one that fails, two jobs at once.

  launchers.py --program PROGRAM --gradus-run PATH [--torchrun PATH] [--mpirun PATH] [--repeat N] [CASE...]

Each case must end as it says, in time, and leave nothing. Prints a line each.
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time

LIMIT = 60  # seconds for any run
MIXED = 99


class Run:
    """A command in a process group of its own, which is ended when time is over."""

    def __init__(self, command, variables=None, threads=1):
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        environment.pop("OMP_NUM_THREADS", None)
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        environment.update(variables or {})
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.end = time.monotonic() + LIMIT

    def finish(self):
        """Returns status (None: it hung) and output."""
        try:
            output, _ = self.process.communicate(timeout=max(0.1, self.end - time.monotonic()))
            return self.process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return None, self.process.communicate()[0]


failures = 0


def report(name, ok, text=""):
    global failures
    print(f"{'ok    ' if ok else 'FAILED'} {name}", flush=True)
    if not ok:
        failures += 1
        print("  | " + text.replace("\n", "\n  | ")[-4000:], flush=True)


def free_ports(count):
    """Neighbors that nobody uses now."""
    import socket

    while True:
        first = random.randrange(20000, 29000)
        sockets = []
        try:
            for port in range(first, first + count):
                s = socket.socket()
                sockets.append(s)
                s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for s in sockets:
                s.close()


def torchrun(tag, mode, *options):
    return Run([args.torchrun, "--no_python", "--nproc_per_node", "2", *options, args.program, tag, mode])


def plain(tag, rank, port, mode="ok", threads=1):
    return Run(
        [args.program, tag, mode],
        {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        threads,
    )


# ---- one torchrun ----


def one_torchrun(mode, succeeds, says, *options):
    status, output = torchrun("A", mode, "--master_port", str(free_ports(1)), *options).finish()
    broken = "Failed to parse reply file" in output or "invalid literal" in output
    ok = status is not None and (status == 0) == succeeds and not broken and all(s in output for s in says)
    report(f"torchrun: {mode}", ok, f"status {status}\n{output}")


def torchrun_ok():
    one_torchrun("ok", True, ["done A"])


def torchrun_standalone():
    status, output = torchrun("A", "ok", "--standalone").finish()
    report("torchrun: standalone", status == 0 and "done A" in output, f"status {status}\n{output}")


def torchrun_throw():
    one_torchrun("throw", False, ["rank 1 failed: ValueError: [job_program] no luck today"])


def torchrun_exit():
    one_torchrun("exit", False, ["rank 1 exited with code 7"])


def torchrun_kill():
    one_torchrun("kill", False, ["SIGKILL"])


def torchrun_restart():
    one_torchrun("restart", True, ["no luck today", "done A"], "--max_restarts", "1")


def torchrun_alone():
    one_torchrun("alone", False, ["as RANK and WORLD_SIZE say, but it is in no job"])


# ---- two jobs at once ----


def together(name, runs, all_succeed):
    """Starts all at the same moment; none may be mixed or hang."""
    results = [r.finish() for r in [make() for make in runs]]
    mixed = any(status == MIXED or "MIXED" in output for status, output in results)
    hung = any(status is None for status, _ in results)
    bad = all_succeed and any(status != 0 for status, _ in results)
    text = "\n".join(f"status {status}\n{output}" for status, output in results)
    return not (mixed or hung or bad), text


def repeated(name, make_runs, all_succeed):
    for i in range(args.repeat):
        ok, text = together(name, make_runs(), all_succeed)
        if not ok:
            return report(f"{name}, time {i + 1} of {args.repeat}", False, text)
    report(f"{name}, {args.repeat} times", True)


def two_torchruns_on_neighbors():
    def runs():
        port = free_ports(2)
        return [lambda t=t, p=p: torchrun(t, "ok", "--master_port", str(p)) for t, p in (("A", port), ("B", port + 1))]

    repeated("two torchruns on neighboring ports", runs, True)


def two_torchruns_on_one():
    def runs():
        port = str(free_ports(1))
        return [lambda t=t: torchrun(t, "ok", "--master_port", port) for t in "AB"]

    repeated("two torchruns on one port", runs, False)


def plain_on(name, ports, order, all_succeed):
    def runs():
        first = free_ports(2)
        return [lambda job=o[0], rank=int(o[1]): plain(job, rank, first + ports[job]) for o in order.split()]

    repeated(name, runs, all_succeed)


def plain_on_neighbors():
    plain_on("plain processes on neighboring ports", {"A": 0, "B": 1}, "A0 B0 B1 A1", True)


def plain_on_one():
    for order in ("A0 B0 B1 A1", "A0 B1 B0 A1", "A1 B1 A0 B0", "B1 A0 A1 B0"):
        plain_on(f"plain processes on one port, {order}", {"A": 0, "B": 0}, order, False)


def plain_by_name():
    """Jobs that have a name of their own never mix, whatever the port."""

    def runs():
        port = free_ports(1)

        def make(job, rank):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            return Run([args.program, job, "ok"], dict(variables, GRADUS_JOB_ID=job))

        return [lambda job=o[0], rank=int(o[1]): make(job, rank) for o in ("A0", "B1", "A1", "B0")]

    repeated("plain processes on one port, with names", runs, False)


# ---- mpirun ----


def mpirun_ok():
    command = [args.mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", args.program]
    ok, text = together("mpirun", [lambda t=t: Run(command + [t, "ok"]) for t in "AB"], True)
    report("two mpiruns at once", ok, text)


# ---- speed ----


def step_time(runs):
    """Milliseconds of a training step, which rank 0 prints."""
    results = [r.finish() for r in runs]
    output = "".join(o for _, o in results)
    found = re.search(r"step ([0-9.]+) ms", output)
    if not found or any(status != 0 for status, _ in results):
        raise RuntimeError(output)
    return float(found[1])


def as_fast():
    """Who sets no number of threads gets as many from every launcher: the cores over the ranks."""
    command = [args.program, "A", "train"]
    ways = {"gradus-run": lambda: [Run([args.gradus_run, "--nproc-per-node", "2", *command], threads=None)]}
    if args.mpirun:
        mpirun = [args.mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", "2", *command]
        ways["mpirun"] = lambda: [Run(mpirun, threads=None)]

    def plainly():
        port = free_ports(1)
        return [plain("A", rank, port, "train", None) for rank in range(2)]

    ways["plain processes"] = plainly
    times = {way: [] for way in ways}
    for _ in range(9):
        for way, start in ways.items():
            times[way].append(step_time(start()))
    ratios = {way: statistics.median(a / b for a, b in zip(times[way], times["gradus-run"])) for way in ways}
    for way in ways:
        print(f"  {way}: {statistics.median(times[way]):.2f} ms, {ratios[way]:.3f} of gradus-run's")
    report("as fast by every launcher, within 5 %", all(r < 1.05 for r in ratios.values()))


CASES = {
    f.__name__: f
    for f in (
        torchrun_ok,
        torchrun_standalone,
        torchrun_throw,
        torchrun_exit,
        torchrun_kill,
        torchrun_restart,
        torchrun_alone,
        two_torchruns_on_neighbors,
        two_torchruns_on_one,
        plain_on_neighbors,
        plain_on_one,
        plain_by_name,
        mpirun_ok,
        as_fast,
    )
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--program", required=True, help="job_program")
parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
parser.add_argument("--gradus-run", required=True, help="gradus-run")
parser.add_argument("--torchrun", help="PyTorch's; without it its cases are left out")
parser.add_argument("--mpirun", help="Open MPI's; likewise")
parser.add_argument("--repeat", type=int, default=50, help="of two jobs at once [50]")
args = parser.parse_args()

for name in args.cases or CASES:
    if name not in CASES:
        sys.exit(f"no case {name}; there are: {', '.join(CASES)}")
    if ("torchrun" in name and not args.torchrun) or ("mpirun" in name and not args.mpirun):
        print(f"left out: {name}")
        continue
    CASES[name]()
sys.exit(1 if failures else 0)
