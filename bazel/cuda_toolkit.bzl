"""The repository of the CUDA toolkit: nvcc and headers, where there are some."""

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/*.hpp", "include/crt/**"]),
    includes = ["include"],
)

cc_library(
    name = "static_runtime",
    srcs = glob(["lib64/libcudart_static.a"]),
    linkopts = ["-ldl", "-lpthread", "-lrt"],
)
"""

_NONE = """package(default_visibility = ["//visibility:public"])

cc_library(name = "headers")

cc_library(name = "static_runtime")
"""

_NEEDED = [
    "bin/nvcc",
    "include/cublasLt.h",
    "include/cuda_runtime_api.h",
    "include/cudnn_graph.h",
    "include/nccl.h",
    "lib64/libcudart_static.a",
]

def _cuda_toolkit_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    missing = [part for part in _NEEDED if not ctx.path(home + "/" + part).exists]

    # Nobody asked for a toolkit that is not there at all.
    if missing and ("CUDA_HOME" in ctx.os.environ or _NEEDED[0] not in missing):
        # buildifier: disable=print
        print("no kernels for GPUs: {} has no {}".format(home, ", ".join(missing)))
    if not missing:
        ctx.symlink(home + "/include", "include")
        ctx.symlink(home + "/lib64", "lib64")
    ctx.file("BUILD.bazel", _NONE if missing else _BUILD)
    ctx.file("toolkit.bzl", "NVCC = {}\n".format(repr("" if missing else home + "/bin/nvcc")))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    doc = """Links the toolkit below CUDA_HOME (default /usr/local/cuda).

    Holds NVCC, the compiler's path, which is empty where the toolkit is not there or incomplete. Targets that need it are
    then incompatible (cuda.bzl), so that Bazel skips them.""",
    environ = ["CUDA_HOME"],
    local = True,
)
