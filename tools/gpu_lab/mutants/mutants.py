"""Runs the checks of kernels once for each mutant, and prints the mutants that no check notices.

    python3 mutants.py PROGRAM LIST [--seeds 5] [--every N] [NUMBER...]

PROGRAM runs kernels on the emulated device, in the order that a seed gives, and contains all mutants of LIST, which
mutate.py wrote. A mutant is noticed if the device reports a fault, a result is wrong, or the kernel does not end. Status
1: a mutant survives that SURVIVORS does not explain, an explained one does not survive, or fewer than 95 of 100 are
noticed (when all mutants run).
"""
import argparse
import collections
import concurrent.futures
import os
import re
import resource
import subprocess
import sys

# Checks that run the kernels of a file; all, for a file that is not here.
CHECKS = {
    "arrange.cu.cc": ["triangles of f32", "repeated indices"],
    "batch_norm.cu.cc": ["batch norm of f32"],
    "batch_norm_backward.cu.cc": ["batch norm of f32"],
    "channel_sums.h": ["batch norm of f32"],
    "chunk_loop.h": ["gradients in f32", "steps"],
    "copy.cu.cc": ["copy u8", "copy f32", "copy several", "fill", "conversions", "arange"],
    "cross_entropy.cu.cc": ["cross entropy of f32"],
    "direct_conv.cu.cc": ["convolutions of f32"],
    "elementwise.h": ["element-wise", "conversions"],
    "gradients.cu.cc": ["gradients in f32"],
    "group_norm.cu.cc": ["group norm of f32"],
    "index.cu.cc": ["indexing of f32", "indexing of bf16", "flat positions"],
    "layer_norm.cu.cc": ["layer norm of f32"],
    "loss_sum.h": ["sums of losses in f32"],
    "masks.cu.cc": ["masks of f32"],
    "merge_sort.h": ["multinomial", "indexing of f32"],
    "multinomial.cu.cc": ["multinomial"],
    "optim_step.h": ["steps"],
    "pool.cu.cc": ["pooling of f32"],
    "random.cu.cc": ["random uniform numbers of f32", "random dropout mask of p = 0.3", "random orders",
                     "random dropout of f32", "random below p of f32"],
    "recurrent.cu.cc": ["recurrent cells of f32"],
    "reduce.h": ["sum", "gradients in f32"],
    "resample.cu.cc": ["resampling of f32"],
    "row_scan.h": ["running sums of f32", "scans of f32", "running extremes of f32"],
    "scans.cu.cc": ["running sums of f32", "scans of f32", "running products", "running extremes of f32"],
    "search.cu.cc": ["searches of f32", "histograms of f32"],
    "sort.cu.cc": ["sorts of f32", "selections of f32", "selections of i64"],
    "strided.h": ["copy u8", "element-wise"],
    "tensor_table.h": ["gradients in f32", "steps"],
    "thread_groups.h": ["softmax of f32", "cross entropy of f32"],
    "unfold.cu.cc": ["unfold and fold of f32"],
    "upfirdn.cu.cc": ["upfirdn2d of f32"],
    "vector_io.h": ["element-wise", "fill", "random uniform numbers of f32", "random dropout of f32"],
}
# Mutants that survive, and why the check stays: (file, kind, what stands there): reason.
SURVIVORS = {
    ("elementwise.h", "off by one", "at < count"):
        "a thread with nothing left goes through the loop once: loads and stores have bounds of their own",
    ("merge_sort.h", "off by one", "a.index < b.index"): "no element meets itself",
    ("multinomial.cu.cc", "bound", "std::min(n, wrong + kChunk) is n"):
        "the first chunk has a number that is no weight: to read on costs time alone",
    ("multinomial.cu.cc", "one thread", "lane != 0"): "all lanes of the warp report the same",
    ("unfold.cu.cc", "off by one", "tap < a.kernel"): "the loop over the taps takes none behind the last one",
    ("multinomial.cu.cc", "off by one", "at < per_row"): "there are no chunks behind the last one: they count as 0",
    ("reduce.h", "bound", "std::min<N>(n, kVector - misaligned) is n"):
        "a misaligned row is read element by element: right, but slow",
    ("strided.h", "bound", "d >= dims"): "loops that the index has not are of one element; to leave them out saves time",
    ("strided.h", "off by one", "d >= dims"): "the same",
    ("thread_groups.h", "off by one", "g.stride * g.size <= kWarp"): "a power of two, which 33 is not",
    ("thread_groups.h", "off by one", "larger > row_max"):
        "a sum relative to a number that is less by 1 at most is as good",
}


def processor_time(process):
    with open("/proc/%d/stat" % process, encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[11:13]


def run(program, file, number, seed, seconds):
    """What was noticed; nothing if all went well. `seconds` are the processor's."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    env = dict(os.environ, GRADUS_MUTANT=str(number), GRADUS_EMULATED_SEED=str(seed))
    done = subprocess.Popen([program] + CHECKS.get(os.path.basename(file), []), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, preexec_fn=limit, env=env)
    before = None
    while True:
        try:
            out, err = done.communicate(timeout=10)
            break
        except subprocess.TimeoutExpired:
            now = processor_time(done.pid)
            if now == before:  # all its threads wait
                done.kill()
            before = now
    if done.returncode == 0:
        return ""
    fault = re.search(r"^gradus emulated device: (.*)", err, re.M)
    if fault:
        return "fault: " + fault[1]
    wrong = re.search(r"^FAIL  (.*)", out, re.M)
    if wrong:
        return "wrong: " + " ".join(wrong[1].split())
    if done.returncode in (-9, -24):
        return "does not end"
    return "ended with status %d" % done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("list")
    parser.add_argument("--seeds", type=int, default=5, help="1 ... N; a mutant that one of them shows is noticed")
    parser.add_argument("--every", type=int, default=1, help="every N-th mutant alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("numbers", type=int, nargs="*", help="these mutants alone")
    options = parser.parse_args()
    with open(options.list, encoding="utf-8") as file:
        mutants = [line.rstrip("\n").split("\t") for line in file]
    kinds = {"barrier", "mask", "bound", "off by one", "one thread", "alignment"}
    missing = kinds - {m[1] for m in mutants}
    if missing:
        sys.exit("no mutants of these kinds: " + ", ".join(sorted(missing)))
    mutants = mutants[::options.every]
    if options.numbers:
        mutants = [m for m in mutants if int(m[0]) in options.numbers]

    seconds = {}  # that a file's checks may take
    for file in sorted({m[2] for m in mutants}):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        noticed = run(options.program, file, 0, 1, 120)
        if noticed:
            sys.exit("%s: the checks fail without a mutant: %s" % (file, noticed))
        seconds[file] = 2 + 3 * int(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)

    def search(mutant):
        number, _, file, _, _ = mutant
        for seed in range(1, options.seeds + 1):
            noticed = run(options.program, file, number, seed, seconds[file])
            if noticed:
                return seed, noticed
        return 0, ""

    survivors, unexpected, kinds = [], 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (seed, noticed) in zip(mutants, pool.map(search, mutants)):
            number, kind, file, line, text = mutant
            reason = SURVIVORS.get((os.path.basename(file), kind, text))
            if noticed:
                kinds[noticed.split(":")[0]] += 1
            else:
                survivors.append((mutant, reason))
            wanted = bool(noticed) != bool(reason)
            unexpected += not wanted
            print("%s\t%s\t%s:%s\t%s\t%s%s" % (
                number, kind, file, line, text, "seed %d, %s" % (seed, noticed) if noticed else "SURVIVES",
                "" if wanted else ", which is not explained" if not noticed else ", though it is explained"), flush=True)
    for (number, kind, file, line, text), reason in survivors:
        print("survivor %s, %s:%s, %s, %s: %s" % (number, file, line, kind, text, reason or "NOT EXPLAINED"))
    found = len(mutants) - len(survivors)
    print("%d of %d mutants noticed (%s), %d survive, %d not as expected" % (
        found, len(mutants), ", ".join("%d %s" % (n, k) for k, n in kinds.most_common()), len(survivors), unexpected))
    whole = options.every == 1 and not options.numbers
    return 1 if unexpected or (whole and found < 0.95 * len(mutants)) else 0


sys.exit(main())
