"""Writes docs/gpu-status.md: which kernels were compiled, which ran on the emulated device, which on a real GPU.

    python3 gpu_status.py [--check]     --check: only says whether the page is as it would be written

What ran on a GPU stands in tests/cuda/recorded/*/kernels_on_device.txt and op_table_on_device.txt. The checksums of what
they ran are beside them, in kernels_on_device.sources: a file that has changed since is named.
"""
import glob
import hashlib
import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = "docs/gpu-status.md"
RECORDS = "tests/cuda/recorded/*/kernels_on_device.txt"
TABLES = "tests/cuda/recorded/*/op_table_on_device.txt"
KERNELS = "tensor/cuda/kernels/"
EVERYWHERE = ["element.h", "nest.h", "strided.h"]

# (family, its kernels, files or patterns of files below tensor/cuda/kernels, how its groups in the records are named)
FAMILIES = [
    ("element-wise ops", "dense strided", ["elementwise.h"] + EVERYWHERE,
     r"element-wise |integers |comparison |logical_and|where"),
    ("copies between layouts", "copy_words copy_transposed", ["copy.cu.cc"] + EVERYWHERE, r"copy "),
    ("copies between dtypes", "convert_any dense", ["copy.cu.cc", "elementwise.h"] + EVERYWHERE, r"conversions"),
    ("fills", "fill_dense fill_words", ["copy.cu.cc"] + EVERYWHERE, r"fill "),
    ("arange, linspace", "fill_line", ["creation.cu.cc", "element.h"], r"arange and linspace"),
] + [(name, "short_rows long_rows columns", ["reduce.h", "reduce_ops.h", "element.h"], groups) for name, groups in [
    ("sums", r"sum of "),
    ("largest and smallest elements", r"amax of |amin of "),
    ("largest magnitudes", r"largest \|x\|"),
    ("any", r"any\b"),
    ("norms", r"norm of "),
    ("variances", r"variance of "),
    ("products", r"prod of "),
    ("largest and smallest with positions", r"max and min of "),
]] + [
    ("softmax", "softmax_held softmax_long softmax_backward_held softmax_backward_long",
     ["softmax.cu.cc", "powers.h", "teams.h"], r"softmax of "),
    ("cross entropy", "cross_entropy_samples cross_entropy_slopes short_rows long_rows",
     ["cross_entropy.cu.cc", "powers.h", "teams.h", "reduce.h", "reduce_ops.h", "element.h"], r"cross entropy of "),
    ("sums of losses", "sum_chunk_of_losses add_sums_of_losses",
     ["loss_sum.h", "chunk_loop.h", "merge_block.h", "reduce.h", "reduce_ops.h", "element.h"], r"sums of losses in "),
    ("pooling", "pool_largest pool_scatter pool_relu_grad pool_gather pool_positions pool_mean pool_spread",
     ["pool.cu.cc", "element.h"], r"pooling of "),
    ("convolutions without a plan of cuDNN's", "sum_taps sum_places", ["direct_conv.cu.cc", "element.h"],
     r"convolutions of "),
    ("random numbers", "draw_rows draw_strided drop_rows drop_strided swap_places choose_below dense strided",
     ["random.cu.cc", "creation.cu.cc", "elementwise.h"] + EVERYWHERE, r"random "),
    ("draws by weights", "sum_chunks add_chunks draw_again sort_tiles merge_runs", ["multinomial.cu.cc"],
     r"multinomial"),
    ("batch norm", "moments gradient_sums normalize normalize_backward normalize_at_once backward_at_once moments_backward finish_sums update_running",
     ["batch_norm*.cu.cc", "channel_sums.h", "element.h"], r"batch norm of "),
    ("sums, norms, clips of gradients",
     "add_to_sums sum_powers_of_chunks take_norm clip_to_norm clip_to_value unscale_chunks find_bad move_loss_scale",
     ["gradients.cu.cc", "tensor_table.h", "chunk_loop.h", "merge_block.h", "reduce.h", "element.h"], r"gradients in "),
    ("steps of optimizers", "step_elements begin_steps", ["optim_step.h", "tensor_table.h", "chunk_loop.h", "element.h"], r"steps of "),
    ("steps of LARS and LAMB", "measure_chunks rates_of_tensors step_at_rates",
     ["optim_step.h", "tensor_table.h", "chunk_loop.h", "merge_block.h", "reduce.h", "element.h"], r"steps by norms "),
]

# Library: how its functions are named; what Gradus calls it for; what the emulated one answers.
LIBRARIES = {
    "cuBLASLt": (r"\bcublasLt[A-Z]\w+\b", "matrix products in f32, tf32, f64, f16 and bf16",
                 "answers of an H100 ([recorded](../tests/cuda/recorded/h100/cublaslt_answers.txt))"),
    "cuDNN": (r"\bcudnn\w+\(|\bCUDNN_ATTR_", "convolutions in f32, tf32, f64, f16 and bf16, in three directions",
              "answers of an H100 ([recorded](../tests/cuda/recorded/h100/cudnn_answers.txt))"),
    "NCCL": (r"\bnccl\w+\(", "", ""),
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def files(pattern):
    return sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, pattern), recursive=True))


def digest(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def wrapped(line):
    return textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


class Record:
    def __init__(self, path):
        text = read(path)
        head = re.match(r"# \S+ on an? (?P<card>[^,]+), driver (?P<driver>[^,]+), CUDA [^,]+, (?P<date>[-\d]+), "
                        r"sources of (?P<commit>\w+)", text)
        if not head:
            raise SystemExit("%s: the first line must say card, driver, date and commit" % path)
        self.card = os.path.basename(os.path.dirname(path)).upper()
        self.about = "%(card)s, driver %(driver)s, %(date)s, sources of %(commit)s" % head.groupdict()
        self.groups = re.findall(r"^(ok|FAIL) +(.{34}) +(\d+) checks, (\d+) wrong", text, re.M)
        self.sources = dict(reversed(line.split()) for line in read(path[:-len("txt")] + "sources").splitlines())
        table = path.replace("kernels_on", "op_table_on")
        self.table = os.path.exists(os.path.join(ROOT, table)) and "[  PASSED  ]" in read(table)

    def changed(self, sources):
        names = [os.path.basename(s) for s in sources
                 if any(self.sources.get(path) != digest(path) for path in files(s) or [s])]
        return "; changed since: " + ", ".join("`%s`" % name for name in names) if names else ""

    def tell(self, pattern, sources):
        """What this record says of a family; nothing if it has no group of it."""
        groups = [(name.strip(), int(checks), int(wrong)) for _, name, checks, wrong in self.groups
                  if re.match(pattern, name)]
        if not groups:
            return ""
        failed = ["%d wrong in %s" % (wrong, re.sub(pattern, "", name)) for name, _, wrong in groups if wrong]
        return ", ".join(["%s: %d checks" % (self.card, sum(g[1] for g in groups))] + failed) + self.changed(sources)


def page():
    sources = {path: read(path) for path in files("tensor/cuda/**/*") if path.endswith((".h", ".cc"))}
    named = {k for _, kernels, _, _ in FAMILIES for k in kernels.split()}
    written = {k for path, text in sources.items() if "/emulated/" not in path
               for k in re.findall(r"^[^/\n]*__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s+)?(\w+)\(", text, re.M)}
    if named != written:
        raise SystemExit("tests/cuda/gpu_status.py: families name the kernels %s; there are also or only %s" % (
            " ".join(sorted(named)), " ".join(sorted(named ^ written))))
    tests = "\n".join(read(path) for path in files("tests/cuda/device/*"))
    records = [Record(path) for path in files(RECORDS)]
    architectures = sorted(set(re.findall(r"sm_\d+", read("bazel/cuda.bzl"))))
    lines = ["""# Which kernels ran on a GPU

Written by `tests/cuda/gpu_status.py`. Compiled: by nvcc, for %s, in each build that finds the toolkit.
Run emulated: by `./run test`, on the emulated device ([cuda.md](cuda.md)), against results of the host. Run on a GPU:
what [the records](../tests/cuda/recorded/README.md) have, how many checks were wrong if any were, and which files have
changed since. Nothing else ran on one.
""" % " and ".join(architectures)]
    lines += ["* %s: %s" % (r.card, r.about) for r in records]
    lines += ["", "| family | compiled | run emulated | run on a GPU |", "| --- | --- | --- | --- |"]
    for family, _, names, groups in FAMILIES:
        told = [t for t in (r.tell(groups, [KERNELS + n for n in names]) for r in records) if t]
        begin = re.split(r"[|\\]", groups)[0].strip()
        lines.append("| %s | yes | %s | %s |" % (family, "yes" if begin in tests else "**no**",
                                                 "; ".join(told) or "**never run on a GPU**"))
    lines.append("")
    ours = {path: text for path, text in sources.items() if not re.search("/(emulated|libraries)/", path)}
    callers = {library: [p for p, text in ours.items() if re.search(call, text)]
               for library, (call, _, _) in LIBRARIES.items()}
    host = [p for p in files("tensor/cuda/*.cc") if p not in sum(callers.values(), [])]
    if host:
        lines += ["The host's code, " + ", ".join("`%s`" % os.path.basename(p) for p in host) + ",",
                  "runs on the emulated device in the tests."]
        lines += ["The op table, copies and streams ran on an %s:\n[recorded](../%s)." % (
            os.path.basename(os.path.dirname(p)).upper(), p) for p in files(TABLES)] or ["It **never ran on a GPU**."]
        lines.append("")
    for library, (_, what, compared) in LIBRARIES.items():
        if not callers[library]:
            lines.append("* %s: Gradus does not call it yet." % library)
            continue
        told = ["%s: the op table passed%s" % (r.card, r.changed(callers[library]))
                for r in records if r.table and r.sources.keys() & set(callers[library])]
        called_by = ", ".join("`%s`" % os.path.basename(p) for p in callers[library])
        lines += [wrapped("* %s, for %s: %s." % (library, what, called_by)),
                  "  Run emulated. The emulated library gives the\n  %s." % compared,
                  wrapped("  Gradus' calls of it on a GPU: %s." % ("; ".join(told) or "**never run on a GPU**"))]
    lines.append("""
The one command that tells more, on a machine with a GPU: `tests/cuda/device/build.sh FOLDER`, then
`FOLDER/check`. What it prints goes to `tests/cuda/recorded/`, with a first line as there, and the file
`FOLDER/sources` beside it.
""")
    return "\n".join(lines)


def main():
    text = page()
    path = os.path.join(ROOT, PAGE)
    if "--check" in sys.argv[1:]:
        if not os.path.exists(path) or read(PAGE) != text:
            raise SystemExit(PAGE + " is not up to date: python3 tests/cuda/gpu_status.py writes it")
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


main()
