"""Rules for kernels. A kernel file, *.cu.cc, is compiled twice: by nvcc for GPUs, by the host's compiler for the emulated
device (tools/cuda_emulator).

    load("//bazel:cuda.bzl", "gpu_library")

    gpu_library(
        name = "kernels",                       # for GPUs; "kernels_emulated" for the emulated device
        srcs = ["copy.cu.cc"],
        hdrs = ["copy.h"],
        deps = ["//tensor/cuda:kernel"],
    )
"""

load("@cuda_toolkit//:toolkit.bzl", "NVCC")
load("//bazel:defs.bzl", "gradus_library", "gradus_test")

_INCOMPATIBLE = ["//bazel:incompatible"]

def _compatible_unless(conditions):
    if not NVCC:
        return _INCOMPATIBLE
    return select(dict(
        {condition: _INCOMPATIBLE for condition in conditions},
        **{"//conditions:default": []}
    ))

# Targets that need the toolkit are skipped where there is none, and where it or the emulated device was never tried.
_NOT_TRIED = [
    "//bazel:aarch64",
    "//bazel:clang",
]
CUDA_COMPATIBLE = _compatible_unless(_NOT_TRIED)

# Programs that link //:gradus and the emulated device: under --config=cuda //:gradus links the kernels for GPUs.
EMULATED_COMPATIBLE = _compatible_unless(_NOT_TRIED + ["//bazel:cuda"])

# Tests of the checker need its hooks, which other sanitizers displace (no_openmp: --config=tsan).
CHECKER_COMPATIBLE = _compatible_unless(_NOT_TRIED + ["//bazel:address_sanitizer", "//bazel:no_openmp"])

# -fsanitize=thread makes each memory access call a hook; the hooks are the checker's (tools/cuda_emulator/hooks.cc).
# Elements are accessed one by one, as the kernel has it. Products and sums are not fused, as by nvcc with -fmad=false.
EMULATED_COPTS = [
    "-DGRADUS_DEVICE_FUNCTIONS=<gradus/tools/cuda_emulator/device_functions.h>",
    "-O1",
    "-ffp-contract=off",
    "-fno-tree-vectorize",
    "-g1",
    "-Wno-unknown-pragmas",
] + select({
    "//bazel:address_sanitizer": [],
    "//bazel:no_openmp": ["-fno-sanitize=thread"],
    "//conditions:default": ["-fsanitize=thread"],
})

# Binaries for A100 and H100, and PTX for what comes later, unless --define=cuda_arch=90 names one architecture (.bazelrc).
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]

def _architectures(alone):
    if not alone:
        return _ARCHITECTURES
    if not alone.isdigit() or int(alone) < 80:
        fail("--define=cuda_arch={}: expected a compute capability of at least 8.0, such as 90".format(alone))
    return ["-gencode=arch=compute_{0},code=[sm_{0},compute_{0}]".format(alone)]

_NVCC_OPTIONS = [
    "-x",
    "cu",
    "-std=c++20",
    "-fmad=false",
    "--expt-relaxed-constexpr",
    "--extended-lambda",
    # Calls of host functions in functors that compute in double, which no kernel makes; unsigned numbers below 0.
    "--diag-suppress=20012,20014,20015,186",
    "-Werror=all-warnings",
    "-Xcompiler=-march=x86-64-v3,-ffp-contract=off,-fPIC,-Wno-missing-field-initializers",
]

def _nvcc_archive_impl(ctx):
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    includes = depset(transitive = [context.includes, context.quote_includes, context.system_includes]).to_list()
    options = _NVCC_OPTIONS + _architectures(ctx.var.get("cuda_arch", ""))
    fast = ctx.var.get("cuda_fast_compile")
    options = options + (["-O0", "--Ofast-compile=" + fast] if fast else ["-O3", "--compress-mode=size"])
    objects, resources = [], []
    for src in ctx.files.srcs:
        object = ctx.actions.declare_file("{}_nvcc/{}.o".format(ctx.label.name, src.basename))
        needs = ctx.actions.declare_file("{}_nvcc/{}.tsv".format(ctx.label.name, src.basename))
        ctx.actions.run(
            executable = "/usr/bin/python3",
            arguments = [ctx.file._nvcc.path, needs.path, NVCC] + options + ["-I" + path for path in includes] +
                        ["-I.", "-c", src.path, "-o", object.path],
            inputs = depset([src, ctx.file._nvcc], transitive = [context.headers]),
            outputs = [object, needs],
            env = {"PATH": "/usr/bin:/bin"},
            mnemonic = "Nvcc",
            progress_message = "Compiling {} for GPUs".format(src.short_path),
        )
        resources.append(needs)
        objects.append(object)
    archive = ctx.actions.declare_file("lib{}.{}".format(ctx.label.name, "lo" if ctx.attr.alwayslink else "a"))
    ctx.actions.run_shell(
        command = "rm -f $1; ar rcs \"$@\"",
        arguments = [archive.path] + [object.path for object in objects],
        inputs = objects,
        outputs = [archive],
        mnemonic = "NvccArchive",
    )
    return [
        DefaultInfo(files = depset([archive])),
        OutputGroupInfo(resources = depset(resources)),
    ]

_nvcc_archive = rule(
    implementation = _nvcc_archive_impl,
    doc = "Compiles kernel files by nvcc into a static library. Output group `resources`: what each kernel needs (nvcc.py).",
    attrs = {
        "alwayslink": attr.bool(doc = "Whether programs get objects that they do not refer to."),
        "srcs": attr.label_list(allow_files = [".cu.cc"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_nvcc": attr.label(default = "//bazel:nvcc.py", allow_single_file = True),
    },
)

def emulated_library(name, srcs, hdrs = [], deps = [], copts = [], **kwargs):
    """Kernel files for the emulated device alone.

    Args:
      name: the target's name.
      srcs: *.cu.cc
      hdrs: headers for hosts and kernels.
      deps: what they include; the emulated device is added.
      copts: added to those of the emulated device.
      **kwargs: as for cc_library.
    """
    gradus_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = EMULATED_COPTS + copts,
        target_compatible_with = CUDA_COMPATIBLE,
        deps = deps + [
            "//tools/cuda_emulator:emulator",
            "//tensor/cuda:kernel",
        ],
        **kwargs
    )

def gpu_library(name, srcs, hdrs = [], deps = [], emulated_copts = [], alwayslink = False, **kwargs):
    """Kernel files for GPUs, as `name`, and for the emulated device, as `name`_emulated.

    `name`_resources is a file for each source with the registers, memory and loads of its kernels: nvcc.py.

    Args:
      name: the target's name.
      srcs: *.cu.cc
      hdrs: headers for hosts and kernels.
      deps: what they include.
      emulated_copts: the host compiler's options for the emulated device.
      alwayslink: whether programs get objects that they do not refer to.
      **kwargs: as for cc_library.
    """
    emulated_library(name + "_emulated", srcs, hdrs, deps, emulated_copts, alwayslink = alwayslink, **kwargs)
    gradus_library(
        name = name + "_headers",
        hdrs = hdrs,
        target_compatible_with = CUDA_COMPATIBLE,
        deps = deps + ["//tensor/cuda:kernel"],
        **kwargs
    )
    _nvcc_archive(
        name = name + "_nvcc",
        testonly = kwargs.get("testonly", False),
        srcs = srcs,
        alwayslink = alwayslink,
        tags = kwargs.get("tags", []),
        deps = [":" + name + "_headers"],
        target_compatible_with = CUDA_COMPATIBLE,
    )
    native.filegroup(
        name = name + "_resources",
        srcs = [":" + name + "_nvcc"],
        output_group = "resources",
        tags = kwargs.get("tags", []),
        testonly = kwargs.get("testonly", False),
        visibility = ["//tools/gpu_lab:__subpackages__"],
    )
    gradus_library(
        name = name,
        srcs = [":" + name + "_nvcc"],
        target_compatible_with = CUDA_COMPATIBLE,
        deps = [":" + name + "_headers"],
        **kwargs
    )

def gpu_test(name, deps, target_compatible_with = CUDA_COMPATIBLE, **kwargs):
    """A GoogleTest program that runs kernels on the emulated device.

    Args:
      name: the target's name.
      deps: what is tested.
      target_compatible_with: CHECKER_COMPATIBLE where the checker must find something.
      **kwargs: as for gradus_test.
    """
    gradus_test(
        name = name,
        target_compatible_with = target_compatible_with,
        deps = deps + ["//tools/cuda_emulator:emulator"],
        **kwargs
    )
