"""The rules Gradus is built with. Every C++ target of Gradus uses them.

    load("//bazel:defs.bzl", "gradus_library", "gradus_test")

    gradus_library(
        name = "shape",
        srcs = ["shape.cc"],
        hdrs = ["shape.h"],                     # #include "gradus/tensor/base/shape.h"
        visibility = ["//bazel:uses_tensor"],
        deps = [":errors"],
    )

    gradus_test(
        name = "shape_test",
        srcs = ["shape_test.cc"],               # GoogleTest with its main()
        deps = ["//tensor:shape"],
    )
"""

# Two warnings are off: designated initializers leave the remaining options at their defaults on purpose, and g++ 12
# reports -Wrestrict for `"text" + std::string`. Warnings that come out of the optimizer are no errors: each version of the
# compiler has other false ones (g++ 14 reports -Warray-bounds for the copy of a std::vector).
#
# Of clang, five more: `&` and `|` of bool are meant, as branches would keep loops from becoming vector code; slots of
# kernels (tensor/kernel.h) are defined in another library; g++ alone knows `#pragma GCC ivdep`.
GRADUS_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-error=array-bounds",
    "-Wno-error=dangling-pointer",
    "-Wno-error=maybe-uninitialized",
    "-Wno-error=nonnull",
    "-Wno-error=stringop-overflow",
    "-Wno-error=stringop-overread",
    "-Wno-missing-field-initializers",
] + select({
    "//bazel:clang": [
        "-Wno-bitwise-conditional-parentheses",
        "-Wno-bitwise-instead-of-logical",
        "-Wno-undefined-var-template",
        "-Wno-unknown-pragmas",
        "-Wno-unknown-warning-option",
    ],
    "//conditions:default": ["-Wno-restrict"],
})

# On x86, code for all processors with AVX2 and FMA (x86-64-v3), so that a binary runs on other machines too. Kernels of
# higher levels are chosen at run time: tensor/cpu/levels.h.
PROCESSOR_COPTS = select({
    "//bazel:aarch64": [],
    "//bazel:native": ["-march=native"],
    "//conditions:default": ["-march=x86-64-v3"],
})

# Tests spend more time in the compiler than in their own code, and -O1 compiles them in four fifths of the time of -O2.
TEST_COPTS = select({
    "//bazel:optimized": ["-O1"],
    "//conditions:default": [],
})

# For tests of the levels of x86 processors, and for scripts, which the emulator of tools/on-arm.sh does not run.
X86_COMPATIBLE = select({
    "//bazel:aarch64": ["//bazel:incompatible"],
    "//conditions:default": [],
})

# For the one target that runs teams of OpenMP's threads: those of libgomp, which are oneDNN's.
OPENMP_LINKOPTS = select({
    "//bazel:no_openmp": [],
    "//conditions:default": ["-lgomp"],
})

# Part of every program that ThreadSanitizer looks at.
TSAN_DEPS = select({
    "//bazel:no_openmp": ["//bazel:tsan_suppressions"],
    "//conditions:default": [],
})

def gradus_library(name, copts = [], linkstatic = True, **kwargs):
    """A library whose public headers are included by their path in the tree, below gradus/.

    Args:
      name: the target's name.
      copts: added to Gradus' own, and to those of tests if the library is testonly.
      linkstatic: static by default, so that each file is compiled once.
      **kwargs: as for cc_library; hdrs may be used by those who depend on it, headers in srcs only by name.
    """
    native.cc_library(
        name = name,
        copts = GRADUS_COPTS + PROCESSOR_COPTS + (TEST_COPTS if kwargs.get("testonly") else []) + copts,
        include_prefix = "gradus",
        linkstatic = linkstatic,
        strip_include_prefix = "/",
        **kwargs
    )

def gradus_binary(name, deps = [], copts = [], **kwargs):
    """A program.

    Args:
      name: the target's name.
      deps: the libraries it uses.
      copts: added to Gradus' own.
      **kwargs: as for cc_binary.
    """
    native.cc_binary(
        name = name,
        copts = GRADUS_COPTS + PROCESSOR_COPTS + (TEST_COPTS if kwargs.get("testonly") else []) + copts,
        deps = deps + TSAN_DEPS,
        **kwargs
    )

def gradus_test(name, deps = [], copts = [], size = "small", linkstatic = True, **kwargs):
    """A GoogleTest program, with GoogleMock and main().

    Args:
      name: the target's name.
      deps: what is tested; GoogleTest is added.
      copts: added to Gradus' own.
      size: small tests have two minutes, medium ones ten (.bazelrc).
      linkstatic: static by default: no library is compiled a second time for it.
      **kwargs: as for cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = GRADUS_COPTS + PROCESSOR_COPTS + TEST_COPTS + copts,
        linkstatic = linkstatic,
        deps = deps + ["@gtest//:gtest_main"] + TSAN_DEPS,
        **kwargs
    )
