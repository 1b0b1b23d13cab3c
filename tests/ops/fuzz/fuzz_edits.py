"""Whether the search finds mistakes: tools/fuzz-edits.sh [--seconds N] [NUMBER...]

Makes one deliberate mistake after the other, each at the end of a tile, a block or a vector of a kernel in tensor/cpu,
in a copy of the tree, builds the search there and lets it run, and says whether and when it found the mistake.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time

# (file in tensor/cpu, what stands there, what the mistake makes of it). What stands there must be there once.
EDITS = [
    ("reduce_loops.h", "reduced[0].x_stride == width;", "reduced[0].x_stride == (width > 0 ? inner.size : width);"),
    ("reduce_loops.h", "while (n - i >= kLanes) {", "while (n - i >= kLanes - 1) {"),
    ("reduce_loops.h", "tasks = (units + per_task - 1) / per_task", "tasks = (units + per_task - 2) / per_task"),
    ("reduce_loops.h", "tiles = (columns + tile - 1) / tile;", "tiles = (columns + tile - 2) / tile;"),
    ("reduce_loops.h", "tasks = (rows + per_task - 1) / per_task", "tasks = (rows + per_task - 2) / per_task"),
    ("reduce.cc", "for (; i + kLanes <= n; i += kLanes)", "for (; i + kLanes <= n + 1; i += kLanes)"),
    ("scan.cc", "row + kGroup <= outer)", "row + kGroup <= outer + 1)"),
    ("scan.cc", "const int64_t tiles = (inner + tile - 1) / tile;", "const int64_t tiles = (inner + tile - 2) / tile;"),
    ("scan.cc", "for (; n_ - at >= kBatch; at += kBatch) {", "for (; n_ - at >= kBatch - 1; at += kBatch) {"),
    ("softmax.cc", "for (; i + kLanes <= n; i += kLanes)", "for (; i + kLanes <= n + 1; i += kLanes)"),
    ("softmax.cc", "for (int64_t at = 0; at < n; at += kTile)", "for (int64_t at = 0; at + 1 < n; at += kTile)"),
    ("softmax.cc", "tiles = (inner + width - 1) / width;", "tiles = (inner + width - 2) / width;"),
    ("softmax.cc", "for (int64_t first = 0; first < rows; first += per_buffer)",
     "for (int64_t first = 0; first + 1 < rows; first += per_buffer)"),
    ("sort.cc", "        count = k_;", "        count = k_ - 1;"),
    ("transpose.cc", "whole_rows = rows / n * n", "whole_rows = (rows + 1) / n * n"),
    ("copy.cc", "strips = (rows + strip - 1) / strip", "strips = (rows + strip - 2) / strip"),
    ("copy.cc", "blocks = (inner + kBlock - 1) / kBlock;", "blocks = (inner + kBlock - 2) / kBlock;"),
    ("elementwise/elementwise.cc", "const int64_t length = std::min(n - done, nest_.inner() - (at + done) % nest_.inner());",
     "const int64_t length = std::min(n - done, nest_.inner() - (at + done) % nest_.inner() + 1);"),
    ("norm/batch_norm.cc", "for (; r + 8 <= last; r += 8)", "for (; r + 8 <= last + 1; r += 8)"),
    ("norm/batch_norm.cc", "r < end; r += kRowsInPart) {", "r + 1 < end; r += kRowsInPart) {"),
    ("norm/layer_norm.cc", "vector_end = first + (last - first) / kLanes * kLanes;",
     "vector_end = first + (last - first + 1) / kLanes * kLanes;"),
    ("norm/layer_norm.cc", "const int64_t end = rows * (b + 1) / blocks;",
     "const int64_t end = (rows * (b + 1) - 1) / blocks;"),
    ("norm/group_norm.cc", "for (int64_t r = first; r < last; r += 16) {",
     "for (int64_t r = first; r + 1 < last; r += 16) {"),
    ("images/pool.cc", "for (int64_t c = 0; c < C; ++c) to[c] *= weight;",
     "for (int64_t c = 0; c + (C > 32) < C; ++c) to[c] *= weight;"),
    ("images/max_pool.cc", "for (; c + kLanes <= C; c += kLanes) f(", "for (; c + kLanes <= C + 1; c += kLanes) f("),
    ("images/upfirdn.cc", "for (; c + kLanes <= C; c += kLanes)", "for (; c + kLanes <= C + 1; c += kLanes)"),
    ("index.cc", "blocks = (n + kMaskBlock - 1) / kMaskBlock;", "blocks = (n + kMaskBlock - 2) / kMaskBlock;"),
    ("index.cc", "tiles = (inner + width - 1) / width;", "tiles = (inner + width - 2) / width;"),
    ("arrange.cc", "for (int64_t row = begin; row < end; ++row) {",
     "for (int64_t row = begin; row + (end < out.numel() / cols) < end; ++row) {"),
    ("losses/cross_entropy.cc", "for (int64_t i = 0; i < samples; ++i) {\n      sum +=",
     "for (int64_t i = 0; i + (samples > 1) < samples; ++i) {\n      sum +="),
    ("conv/products-inl.h", "begin = positions * share / shares, end = positions * (share + 1) / shares;",
     "begin = positions * share / shares, end = positions * (share + 1) / shares - (share + 1 < shares);"),
    ("conv/tiles-inl.h", ": rows((y.size(2) + 1) / 2)", ": rows(y.size(2) / 2)"),
    ("conv/tiles-inl.h", "const int64_t end = c.tiles * last_share / shares;",
     "const int64_t end = (c.tiles * last_share - 1) / shares;"),
    ("conv/winograd_stride2.cc", "4 * row - 1, w = 4 * column - 1", "4 * row, w = 4 * column - 1"),
    ("conv/weight_grad_bf16.cc", "2 * k + 1 < count ? load(dy + O, filters)", "2 * k < count ? load(dy + O, filters)"),
    ("conv/sparse_grad.cc", "length = std::min(s.KW, s.W - at.w) * s.C - skip;",
     "length = std::min(s.KW, s.W - at.w - 1) * s.C - skip;"),
    ("conv/conv.cc", "strides[2] *= g.stride[0], strides[3] *= g.stride[1]", "strides[2] *= g.stride[0]"),
    ("conv/pointwise.cc", "for (int64_t at = first; at < last; at += kChunk) {",
     "for (int64_t at = first; at + 1 < last; at += kChunk) {"),
    ("transpose-inl.h", "return i + 4 <= count ? i : count - 4;", "return i + 4 <= count ? i : count - 3;"),
]


# The level of processor at which a kernel is used, where a higher one has a better kernel.
LEVELS = {"conv/weight_grad_bf16.cc": {"GRADUS_CPU": "avx512_bf16"}}


def copy_tree(root, scratch):
    """Brings the scratch copy to the state of the tree; files that are alike keep their times."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, check=True, capture_output=True,
                           text=True).stdout.split("\n")
    names = [n for n in names if n] + [n for n in ["user.bazelrc"] if os.path.exists(os.path.join(root, n))]
    for name in names:
        source, target = os.path.join(root, name), os.path.join(scratch, name)
        if not os.path.isfile(source):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as f:
            wanted = f.read()
        if os.path.exists(target):
            with open(target, "rb") as f:
                if f.read() == wanted:
                    continue
        shutil.copy(source, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120, help="how long the search may take for each")
    parser.add_argument("--seed", type=int, default=1, help="of the search")
    parser.add_argument("--list", action="store_true", help="only list the mistakes")
    parser.add_argument("numbers", type=int, nargs="*", help="these alone, counted from 1")
    options = parser.parse_args()
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
    kernels = os.path.join(root, "tensor", "cpu")
    chosen = options.numbers or range(1, len(EDITS) + 1)
    for file, old, new in EDITS:
        with open(os.path.join(kernels, file)) as f:
            if f.read().count(old) != 1:
                sys.exit("%s: this must stand there once: %s" % (file, old))
    if options.list:
        for number in chosen:
            print(number, *EDITS[number - 1], sep="\t")
        return 0
    scratch = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "gradus", "fuzz_edits")
    missed = 0
    for number in chosen:
        file, old, new = EDITS[number - 1]
        copy_tree(root, scratch)
        path = os.path.join(scratch, "tensor", "cpu", file)
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace(old, new))
        # Edited kernels do not belong into the cache.
        built = subprocess.run(["bazel", "build", "--noremote_upload_local_results", "//tests/ops:fuzz_ops"],
                               cwd=scratch, capture_output=True, text=True)
        if built.returncode:
            print("%d\t%s\tDOES NOT BUILD: %s" % (number, file, built.stderr), flush=True)
            missed += 1
            continue
        start = time.time()
        run = subprocess.run(["bazel-bin/tests/ops/fuzz_ops", "--seconds=%d" % options.seconds,
                              "--seed=%d" % options.seed], cwd=scratch, capture_output=True, text=True,
                             env=dict(os.environ, OMP_WAIT_POLICY="passive", **LEVELS.get(file, {})))
        seconds = time.time() - start
        # It says so too when a read or write beyond memory ends it. What else ends it has found nothing.
        wrong = re.search(r"WRONG: (.*)", run.stdout)
        how = wrong.group(1) if wrong else ""
        missed += not how
        print("%d\t%s\t%s\t%s" % (number, file, "found in %.0f s: %s" % (seconds, how) if how else "NOT FOUND",
                                  " ".join(new.split())), flush=True)
    print("%d of %d found" % (len(chosen) - missed, len(chosen)))
    return 1 if missed else 0


sys.exit(main())
