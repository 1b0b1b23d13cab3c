"""What a workspace that builds Gradus needs: its own, or one that depends on it.

    load("@gradus//bazel:dependencies.bzl", "gradus_dependencies")

    gradus_dependencies()
"""

load("//bazel:bazel_tools.bzl", "bazel_tools_dependencies")
load("//bazel:cuda_toolkit.bzl", "cuda_toolkit")
load("//bazel:system_library.bzl", "sysroot", "system_library")

def gradus_dependencies():
    """Declares all repositories that Gradus refers to.

    Libraries come from the distribution, so that a build needs no network beyond its packages. A repository is looked
    at only when a target that is built depends on it: whoever does not build the benchmarks needs no LibTorch.
    """
    bazel_tools_dependencies()
    cuda_toolkit(name = "cuda_toolkit")
    sysroot(name = "gradus_sysroot")
    system_library(
        name = "onednn",
        build_file = Label("//bazel/third_party:onednn.BUILD"),
        headers = [
            "dnnl.h",
            "dnnl.hpp",
            "dnnl_config.h",
            "dnnl_debug.h",
            "dnnl_types.h",
            "dnnl_version.h",
            "oneapi",
        ],
        package = "libdnnl-dev",
    )

    system_library(
        name = "highway",
        build_file = Label("//bazel/third_party:highway.BUILD"),
        headers = ["hwy"],
        package = "libhwy-dev",
    )

    system_library(
        name = "eigen",
        build_file = Label("//bazel/third_party:eigen.BUILD"),
        headers = ["eigen3"],
        package = "libeigen3-dev",
    )

    system_library(
        name = "gtest",
        build_file = Label("//bazel/third_party:gtest.BUILD"),
        headers = [
            "gmock",
            "gtest",
        ],
        libs = [
            "libgmock.a",
            "libgmock_main.a",
            "libgtest.a",
        ],
        package = "libgtest-dev libgmock-dev",
    )

    system_library(
        name = "cli11",
        build_file = Label("//bazel/third_party:cli11.BUILD"),
        headers = ["CLI"],
        package = "libcli11-dev",
    )

    system_library(
        name = "nlohmann_json",
        build_file = Label("//bazel/third_party:nlohmann_json.BUILD"),
        headers = ["nlohmann"],
        package = "nlohmann-json3-dev",
    )

    system_library(
        name = "zlib",
        build_file = Label("//bazel/third_party:zlib.BUILD"),
        headers = [
            "zconf.h",
            "zlib.h",
        ],
        package = "zlib1g-dev",
    )

    system_library(
        name = "libjpeg",
        build_file = Label("//bazel/third_party:libjpeg.BUILD"),
        headers = [
            "jconfig.h",
            "jerror.h",
            "jmorecfg.h",
            "jpeglib.h",
        ],
        package = "libjpeg-dev",
    )

    system_library(
        name = "libpng",
        build_file = Label("//bazel/third_party:libpng.BUILD"),
        headers = [
            "png.h",
            "pngconf.h",
            "pnglibconf.h",
        ],
        package = "libpng-dev",
    )

    system_library(
        name = "libwebp",
        build_file = Label("//bazel/third_party:libwebp.BUILD"),
        headers = ["webp"],
        package = "libwebp-dev",
    )

    system_library(
        name = "lmdb",
        build_file = Label("//bazel/third_party:lmdb.BUILD"),
        headers = ["lmdb.h"],
        package = "liblmdb-dev",
    )

    system_library(
        name = "xxhash",
        build_file = Label("//bazel/third_party:xxhash.BUILD"),
        headers = ["xxhash.h"],
        package = "libxxhash-dev",
    )

    system_library(
        name = "curl",
        build_file = Label("//bazel/third_party:curl.BUILD"),
        headers = ["curl"],
        package = "libcurl4-openssl-dev",
    )

    system_library(
        name = "openssl",
        build_file = Label("//bazel/third_party:openssl.BUILD"),
        headers = ["openssl"],
        package = "libssl-dev",
    )

    system_library(
        name = "gloo",
        build_file = Label("//bazel/third_party:gloo.BUILD"),
        headers = ["gloo"],
        package = "libgloo-dev",
    )

    # The yardstick of the benchmarks; targets that use it are tagged "manual".
    system_library(
        name = "libtorch",
        build_file = Label("//bazel/third_party:libtorch.BUILD"),
        headers = [
            "ATen",
            "c10",
            "caffe2",
            "torch",
        ],
        package = "libtorch-dev",
    )
