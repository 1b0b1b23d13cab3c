"""The cross compiler for ARM: Debian's, with the libraries of a sysroot."""

load("@bazel_tools//tools/cpp:unix_cc_toolchain_config.bzl", "cc_toolchain_config")
load("@gradus_sysroot//:sysroot.bzl", "SYSROOT")

_PREFIX = "/usr/bin/aarch64-linux-gnu-"

def aarch64_toolchain_config(name):
    """Flags are those that Bazel chooses on the host.

    Args:
      name: the target's name.
    """
    cc_toolchain_config(
        name = name,
        abi_libc_version = "local",
        abi_version = "local",
        builtin_sysroot = SYSROOT,
        compile_flags = [
            "-U_FORTIFY_SOURCE",
            "-fstack-protector",
            "-Wall",
            "-Wunused-but-set-parameter",
            "-Wno-free-nonheap-object",
            "-fno-omit-frame-pointer",
        ],
        compiler = "gcc",
        cpu = "aarch64",
        cxx_builtin_include_directories = [
            "/usr/lib/gcc-cross/aarch64-linux-gnu/12/include",
            "/usr/aarch64-linux-gnu/include",
            SYSROOT + "/usr/include",
        ],
        dbg_compile_flags = ["-g"],
        host_system_name = "local",
        link_flags = ["-Wl,-z,relro,-z,now"],
        link_libs = [
            "-lstdc++",
            "-lm",
        ],
        opt_compile_flags = [
            "-g0",
            "-O2",
            "-D_FORTIFY_SOURCE=1",
            "-DNDEBUG",
            "-ffunction-sections",
            "-fdata-sections",
        ],
        opt_link_flags = ["-Wl,--gc-sections"],
        target_libc = "local",
        target_system_name = "aarch64-linux-gnu",
        tool_paths = {
            "ar": _PREFIX + "ar",
            "cpp": _PREFIX + "cpp-12",
            "dwp": _PREFIX + "dwp",
            "gcc": _PREFIX + "gcc-12",
            "gcov": _PREFIX + "gcov-12",
            "ld": _PREFIX + "ld",
            "llvm-cov": "None",
            "nm": _PREFIX + "nm",
            "objcopy": _PREFIX + "objcopy",
            "objdump": _PREFIX + "objdump",
            "strip": _PREFIX + "strip",
        },
        toolchain_identifier = name,
        unfiltered_compile_flags = [
            "-fno-canonical-system-headers",
            "-Wno-builtin-macro-redefined",
            "-D__DATE__=\"redacted\"",
            "-D__TIMESTAMP__=\"redacted\"",
            "-D__TIME__=\"redacted\"",
        ],
    )
