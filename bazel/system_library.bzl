"""Repositories made of files of distribution packages: below /usr, or below the folder that GRADUS_SYSROOT names."""

_SYSROOT = "GRADUS_SYSROOT"

_INCLUDE_DIRS = [
    "/usr/include",
    "/usr/include/x86_64-linux-gnu",
    "/usr/include/aarch64-linux-gnu",
]

_LIB_DIRS = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
]

def _link(ctx, name, dirs, into):
    for directory in dirs:
        path = ctx.path(ctx.os.environ.get(_SYSROOT, "") + directory + "/" + name)
        if path.exists:
            ctx.symlink(path, into + "/" + name)
            return
    fail("@{} needs {}, which is not installed. Run: apt-get install {}".format(ctx.name, name, ctx.attr.package))

def _system_library_impl(ctx):
    for header in ctx.attr.headers:
        _link(ctx, header, _INCLUDE_DIRS, "include")
    for lib in ctx.attr.libs:
        _link(ctx, lib, _LIB_DIRS, "lib")
    ctx.symlink(ctx.attr.build_file, "BUILD.bazel")

# Not new_local_repository on /usr: a second way into /usr/include breaks the `#include_next` chain of the standard
# library, and no include path at all would hide the headers from Bazel, which then misses an upgraded package.
system_library = repository_rule(
    implementation = _system_library_impl,
    doc = "Links named headers to include/ and libraries to lib/; fails, naming the package, only when it is used.",
    attrs = {
        "build_file": attr.label(mandatory = True, allow_single_file = True),
        "headers": attr.string_list(mandatory = True, doc = "Files and folders below the include folder."),
        "libs": attr.string_list(doc = "Static libraries; shared ones are found by -l."),
        "package": attr.string(mandatory = True, doc = "What to install when a file is missing."),
    },
    environ = [_SYSROOT],
    local = True,
)

def _sysroot_impl(ctx):
    ctx.file("BUILD.bazel")
    ctx.file("sysroot.bzl", "SYSROOT = {}\n".format(repr(ctx.os.environ.get(_SYSROOT, ""))))

sysroot = repository_rule(
    implementation = _sysroot_impl,
    doc = "Holds SYSROOT, the folder's name, for cross compilers.",
    environ = [_SYSROOT],
    local = True,
)
