"""Writes docs/gpu-status.md: what was compiled, what ran on the emulated device, what cuDNN plans, what ran on a GPU.

    python3 gpu_status.py [--check]     --check: only says whether the page is as it would be written
    python3 gpu_status.py --sources     prints checksums of what programs for GPUs are made of, and their libraries' calls

What ran on a GPU stands in tests/cuda/recorded/*/kernels_on_device.txt and op_table_on_device.txt. What --sources printed
when they were built is beside them, in kernels_on_device.sources: a file that has changed since is named.
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
KERNELS = "tensor/cuda/kernels/"
PLANS = "tests/cuda/runtime/plans_test.cc"
# Of programs for GPUs; those of kernels and of the host.
SOURCES = ["tensor/cuda/*.*", "tensor/cuda/kernels/*.*", "tensor/cuda/ops/*.*", "tensor/cuda/libraries/*.*",
           "tensor/ops/**/*.h", "tensor/runtime/*.*", "tensor/ops/copy.cc", "tensor/ops/random.cc", "tensor/host_copy.*",
           "optim/cuda/*.*", "optim/rules/*.h"]
EVERYWHERE = ["element.h", "nest.h", "strided.h"]

# (family, its kernels, its files below tensor/cuda/kernels, how its groups in the records are named). What the files
# include counts too, and so do the files that fill its slots: SLOTS.
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
    ("sums of losses", "sum_chunk_of_losses add_sums_of_losses find_outside_of_unit_interval",
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

SLOTS = {
    "element-wise ops": "tensor/cuda/ops/{activations,arithmetic,comparison,math,rounding,trigonometry}.cu.cc",
    "copies between layouts": "tensor/cuda/ops/copy.cc",
    "copies between dtypes": "tensor/cuda/ops/copy.cc",
    "fills": "tensor/cuda/ops/copy.cc",
    "arange, linspace": "tensor/cuda/ops/creation.cc",
    "largest and smallest with positions": "tensor/cuda/ops/extremum.cu.cc",
    "softmax": "tensor/cuda/ops/softmax.cc",
    "cross entropy": "tensor/cuda/ops/cross_entropy.cc",
    "sums of losses": "tensor/cuda/ops/pointwise_losses*.cu.cc",
    "pooling": "tensor/cuda/ops/pool.cc",
    "convolutions without a plan of cuDNN's": "tensor/cuda/ops/conv.cc",
    "random numbers": "tensor/cuda/ops/random.cc",
    "draws by weights": "tensor/cuda/ops/random.cc",
    "batch norm": "tensor/cuda/ops/batch_norm.cc",
    "sums, norms, clips of gradients": "tensor/cuda/ops/gradients.cc",
    "steps of optimizers": "tensor/cuda/ops/{average_step.cu,step_items}.cc optim/cuda/{adam_steps,steps}.cu.cc",
    "steps of LARS and LAMB": "tensor/cuda/ops/step_items.cc optim/cuda/steps_by_norms.cu.cc",
}
OF_REDUCTIONS = "tensor/cuda/ops/reduce.cu.cc"

# (what a library computes, files, tests on the emulated device, tests that ask cuDNN's planner for plans, dtypes of both)
COMPUTED = [
    ("products of matrices", "tensor/cuda/{cublaslt,ops/matmul}.cc", "CudaProducts.OrdersOfBothOperands", "", "none needed"),
    ("convolutions", "tensor/cuda/{cudnn,ops/conv}.cc", "CudaConvolutions.AllHavePlans",
     "ModelsOnH100 ModelsOnA100 OthersOnH100 OthersOnA100 OpTable Misaligned", "f32, tf32, f64, f16, bf16, three directions"),
    ("the same with a bias and relu in one graph", "tensor/cuda/{conv_graph,conv_plans}.cc", "PlansOfConvolutions.WithReluKeepNaN",
     "BiasAndRelu", "f32, tf32, f64, f16, bf16"),
    ("the same by measured plans", "tensor/cuda/{fastest,cudnn_plans}.cc",
     "PlansOfConvolutions.ThatAreMeasuredAndStoredGiveTheSame", "", "as above"),
    ("the same by stored plans", "tensor/cuda/{choice_json,conv_choice,conv_plans}.cc",
     "PlansOfConvolutions.ThatAreMeasuredAndStoredGiveTheSame", "ChoicesComeBackFromJson", "f32, f64, f16, bf16, three directions"),
]
BY_THE_TABLE = ["products of matrices", "convolutions"]  # what op_table_on_gpu runs

# Library: how its functions are found, in which files.
LIBRARIES = {
    "CUDA's runtime": (r"\b(cuda[A-Z]\w*)\(|GRADUS_CHECK(?:_ON)?\((?:stream, )?(cuda[A-Z]\w*)", "tensor/cuda/{,ops/}*.*"),
    "cuBLASLt": (r"\bF\((cublasLt\w+)\)()", "tensor/cuda/libraries/*_functions.h"),
    "cuDNN's backend": (r"\bF\((cudnn\w+)\)()", "tensor/cuda/libraries/*_functions.h"),
    "NCCL": (r"\bF\((nccl\w+)\)()", "tensor/cuda/libraries/*_functions.h"),
}

WITH_A_DEVICE = ["cudnnCreate"]  # cuDNN plans without a handle
# What no program that was recorded comes to, although its sources may have it.
ELSEWHERE = {
    "cudaDriverGetVersion": "never: only without a device",
    **dict.fromkeys(["cudaDeviceCanAccessPeer", "cudaDeviceEnablePeerAccess", "cudaMemcpyPeerAsync"],
                    "never: only between two GPUs"),
    **dict.fromkeys(["cudaGetErrorName", "cudaGetErrorString", "cudaGetLastError", "cudaStreamGetDevice",
                     "cublasLtGetStatusName", "cudnnGetErrorString", "cudnnGetLastErrorString"],
                    "never: only where a call fails"),
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def files(patterns):
    """Of patterns with {a,b} and spaces between them."""
    found = set()
    for pattern in patterns.split():
        part = re.search(r"\{([^{}]*)\}", pattern)
        if part:
            found |= {path for one in part[1].split(",") for path in files(pattern.replace(part[0], one))}
        else:
            found |= {os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)}
    return sorted(path for path in found if os.path.isfile(os.path.join(ROOT, path)))


def digest(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def with_includes(paths):
    """The paths, and what they include of kernels, formulas and rules."""
    found, left = set(), list(paths)
    while left:
        path = left.pop()
        if path in found or not re.match("tensor/(cuda|ops)/|optim/(rules|cuda)/", path) or "/emulated/" in path:
            continue
        found.add(path)
        left += [p for p in re.findall(r'^#include "gradus/([^"]+)"', read(path), re.M)
                 if os.path.exists(os.path.join(ROOT, p))]
    return found


def calls_of(library):
    """{function: files that call it}"""
    pattern, where = LIBRARIES[library]
    ours = {path: read(path) for path in files("tensor/cuda/{,kernels/,ops/}*.*")}
    named = {a or b for path in files(where) for a, b in re.findall(pattern, read(path))}
    callers = {call: [path for path, text in ours.items() if re.search(r"\b%s\b" % call, text)] for call in sorted(named)}
    return {call: paths for call, paths in callers.items() if paths}


def compiled_kernels():
    """Names of kernels in files that a gpu_library compiles, and in what these include."""
    sources = set()
    for path in files("{tensor,optim}/cuda/BUILD.bazel"):
        for patterns in re.findall(r"^gpu_library\(.*?srcs = glob\(\[(.*?)\]\)", read(path), re.M | re.S):
            sources |= {p for one in re.findall(r'"(.*?)"', patterns) for p in files(os.path.dirname(path) + "/" + one)}
    return kernels_in(with_includes(sources))


def kernels_in(paths):
    pattern = r"^[^/\n]*__global__\s+void\s+(?:__launch_bounds__\([^()]*\)\s+)?(\w+)\("
    return {name for path in paths for name in re.findall(pattern, read(path), re.M)}


def quoted(paths, short=os.path.basename):
    return ", ".join("`%s`" % name for name in sorted({short(path) for path in paths}))


def wrapped(line):
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


NEVER = "**never run on a GPU**"


class Record:
    """What one card has run."""

    def __init__(self, path):
        text = read(path)
        head = re.match(r"# \S+ on an? (?P<card>[^,]+), driver (?P<driver>[^,]+), CUDA [^,]+, (?P<date>[-\d]+), "
                        r"sources of (?P<commit>\w+)", text)
        if not head:
            raise SystemExit("%s: the first line must say card, driver, date and commit" % path)
        self.card = os.path.basename(os.path.dirname(path)).upper()
        self.date = head["date"]
        self.about = "%(card)s, driver %(driver)s, %(date)s, sources of %(commit)s" % head.groupdict()
        self.groups = re.findall(r"^(ok|FAIL) +(.+?) +(\d+) checks, (\d+) wrong", text, re.M)
        if len(self.groups) != len(re.findall(r"^(?:ok|FAIL) ", text, re.M)):
            raise SystemExit("%s: a group is not as expected" % path)
        lines = [line.split() for line in read(path[:-len("txt")] + "sources").splitlines()]
        self.sources = {path: digest for digest, path in lines if digest != "call"}
        self.calls = {call for kind, call in lines if kind == "call"}
        self.table_path = path.replace("kernels_on", "op_table_on")
        table = read(self.table_path) if os.path.exists(os.path.join(ROOT, self.table_path)) else ""
        self.table = "[  PASSED  ]" in table
        self.tests = set(re.findall(r"^\[ +OK \] (\w+\.\w+)", table, re.M))
        cudnn = re.search(r"cuDNN's \((.*?)\)", table)
        if cudnn:
            self.about += ", cuDNN " + cudnn[1]

    def changed(self, paths):
        return {path for path in paths if self.sources.get(path) != digest(path)}

    def tell(self, pattern):
        """What this record says of a family; nothing if it has no group of it."""
        groups = [(name.strip(), int(checks), int(wrong)) for _, name, checks, wrong in self.groups
                  if re.match(pattern, name)]
        if not groups:
            return ""
        failed = ["%d wrong in %s" % (wrong, re.sub(pattern, "", name)) for name, _, wrong in groups if wrong]
        return "%s: %d checks, %s" % (self.card, sum(g[1] for g in groups), ", ".join(failed) or "none wrong")




def families(records):
    """Rows of the table, lines about what has changed, and the files of all kernels."""
    compiled, written = compiled_kernels(), kernels_in(files("{tensor,optim}/cuda/{,kernels/,ops/}*.*"))
    named = {k for _, kernels, _, _ in FAMILIES for k in kernels.split()}
    if named != written:
        raise SystemExit("tests/cuda/gpu_status.py: families name the kernels %s; there are also or only %s" % (
            " ".join(sorted(named)), " ".join(sorted(named ^ written))))
    tests = "\n".join(read(path) for path in files("tests/cuda/device/*.*"))
    paths = {family: with_includes(files(" ".join([KERNELS + n for n in names] + [SLOTS.get(family, OF_REDUCTIONS)])))
             for family, _, names, _ in FAMILIES}
    common = set.intersection(*paths.values())
    rows, changes = [], []
    for family, kernels, _, groups in FAMILIES:
        begin = re.split(r"[|\\]", groups)[0].strip()
        told = [(r.tell(groups), r.changed(paths[family] - common)) for r in records if r.tell(groups)][:1]
        rows.append((family, "yes" if set(kernels.split()) <= compiled else "**no**",
                     "yes" if begin in tests else "**no**", "none needed",
                     "; ".join(text + ("; changed" if changed else "") for text, changed in told) or NEVER))
        changes += ["* %s: %s." % (family, quoted(changed)) for _, changed in told if changed]
    of_all = records[0].changed(common) if records else set()
    return rows, (["* all kernels: %s." % quoted(of_all)] if of_all else []) + changes, common


def computed(records, of_kernels):
    emulated = "\n".join(read(path) for path in files("tests/cuda/{ops,training,features}/*_test.cc"))
    targets = read("tensor/cuda/BUILD.bazel")
    rows, changes = [], []
    for name, where, test, plans, dtypes in COMPUTED:
        paths = files(where)
        planned = all(", %s)" % plan in read(PLANS) for plan in plans.split())
        ran = [(r, "the op table" if by_the_table else "its test", r.changed(with_includes(paths) - of_kernels))
               for by_the_table in [name in BY_THE_TABLE] for r in records
               if (r.table if by_the_table else test in r.tests) and all(path in r.sources for path in paths)][:1]
        rows.append((name, "yes" if all('"%s"' % path[len("tensor/cuda/"):] in targets for path in paths) else "**no**",
                     "yes" if "(%s)" % test.replace(".", ", ") in emulated else "**no**", dtypes if planned else "**no**",
                     "; ".join("%s: %s passed%s" % (r.card, what, "; changed" if changed else "")
                               for r, what, changed in ran) or NEVER))
        changes += ["* %s: %s." % (name, quoted(changed)) for _, _, changed in ran if changed]
    return rows, changes


def library_calls(records):
    emulated = "\n".join(read(path) for path in files("tensor/cuda/emulated/**/*.cc"))
    asked = "\n".join(read(path) for path in files("tests/cuda/recorded/*.{cu,h}"))
    planner = "\n".join(read(path) for path in files("tensor/cuda/{conv_graph.cc,cudnn_plans.cc,cudnn_calls.h,cudnn.h} " + PLANS))
    rows = []
    for library in LIBRARIES:
        for call, callers in calls_of(library).items():
            word = re.compile(r"\b%s\b" % call)
            ran = [r.card for r in records if call in r.calls]
            rows.append(("`%s`" % call, quoted(callers) if len(callers) < 3 else "%d files" % len(callers),
                         "yes" if re.search(r"\b%s\(" % call, emulated) else "**no**",
                         "yes" if library.startswith("cuDNN") and word.search(planner) and call not in WITH_A_DEVICE
                         and call not in ELSEWHERE else "-",
                         "yes" if word.search(asked) else "no",
                         ELSEWHERE.get(call) or ", ".join(ran) or "**never**"))
    return rows


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head)] + list(rows)]
    return lines + [""]


def host(records):
    """Of the host's code, what ran on a GPU with the programs of a record."""
    paths = files("tensor/cuda/*.cc tensor/cuda/libraries/*.cc tensor/runtime/{stream,pinned_memory,device_allocator}.cc "
                  "tensor/host_copy.cc tensor/ops/{copy,random}.cc")

    def bullet(about, some):
        return [wrapped("* %s: %s." % (about, quoted(some, lambda path: path[len("tensor/"):])))] if some else []

    lines, left, stale = [], set(paths), set()
    for r in records:
        if not r.table:
            continue
        had = {path for path in left if path in r.sources}
        changed = r.changed(had)
        lines += bullet("Ran on an %s ([recorded](../%s))" % (r.card, r.table_path), had - changed)
        left -= had - changed
        stale |= changed
    return (lines + bullet("Ran on a GPU, but has changed since", left & stale) +
            bullet("**Never run on a GPU**", left - stale))


def page():
    records = sorted((Record(path) for path in files(RECORDS)), key=lambda r: r.date, reverse=True)
    architectures = sorted(set(re.findall(r"sm_\d+", read("bazel/cuda.bzl"))))
    kernel_rows, kernel_changes, of_kernels = families(records)
    computed_rows, computed_changes = computed(records, of_kernels)
    lines = ["""# What ran on a GPU

Written by `tests/cuda/gpu_status.py` from the sources and [the records](../tests/cuda/recorded/README.md). Nothing else
ran on a GPU.
"""]
    lines += [wrapped("* %s: %s" % (r.card, r.about)) for r in records]
    lines += ["", wrapped("Compiled: kernels by nvcc for %s, in each build that finds the toolkit. Run emulated: by "
                          "`./run test` on the emulated device ([cuda.md](cuda.md)), against results of the host. "
                          "Planner: the real cuDNN, where it is installed, has plans for an H100 and an A100 that only "
                          "their properties describe. Run on a GPU: what the newest record has. \"changed\" says that a file of "
                          "it [has changed since](#what-has-changed-since). What all kernels are compiled with is named "
                          "there once." % " and ".join(architectures)), ""]
    lines += table(["kernels", "compiled", "run emulated", "planner", "run on a GPU"], kernel_rows)
    lines += table(["by libraries", "compiled", "run emulated", "planner", "run on a GPU"], computed_rows)
    lines += ["## The host's code", "", "All of it runs emulated, but for what opens libraries (`cuda/libraries/`): tests that need the real ones run that.", ""] + host(records)
    lines += ["", "## Calls of libraries", "",
              wrapped("Each is compiled against NVIDIA's headers. Emulated: there is an emulated one, which tests reach; "
                      "launches have another way there. Planner: the real cuDNN answers it without a GPU. Recorded: "
                      "programs of the records called it on an H100. Ran on: Gradus' programs that ran there had it in "
                      "their sources. NCCL is not called yet."), ""]
    lines += table(["call", "called in", "emulated", "planner", "recorded", "ran on"], library_calls(records))
    lines += ["## What has changed since", "", "Also what slots and functors are made of.", ""]
    lines += [wrapped(line) for line in kernel_changes + computed_changes]
    lines.append("""
The one command that tells more, on a machine with a GPU: `tests/cuda/device/build.sh FOLDER`, then
`FOLDER/check`. What it prints goes to `tests/cuda/recorded/`, with a first line as there, and the file
`FOLDER/sources` beside it.
""")
    return "\n".join(lines)


def main():
    if "--sources" in sys.argv[1:]:
        for path in files(" ".join(SOURCES)):
            print(digest(path), path)
        for call in sorted(call for library in LIBRARIES for call in calls_of(library)):
            print("call", call)
        return
    text = page()
    path = os.path.join(ROOT, PAGE)
    if "--check" in sys.argv[1:]:
        if not os.path.exists(path) or read(PAGE) != text:
            raise SystemExit(PAGE + " is not up to date: python3 tests/cuda/gpu_status.py writes it")
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


main()
