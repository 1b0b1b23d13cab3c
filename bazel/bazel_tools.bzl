"""What Bazel itself needs beside the packages of the distribution."""

_RULES_CC = """# The native C++ rules under the names of @rules_cc, which Bazel's own tools load.
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
"""

# Test rules refer to it even when no coverage is collected.
_COVERAGE = """filegroup(
    name = "coverage_report_generator",
    visibility = ["//visibility:public"],
)
"""

def _written_repository_impl(ctx):
    for path, content in ctx.attr.files.items():
        ctx.file(path, content)

_written_repository = repository_rule(
    implementation = _written_repository_impl,
    doc = "A repository whose files are given as text.",
    attrs = {"files": attr.string_dict(mandatory = True)},
)

def bazel_tools_dependencies():
    """Declares the repositories that Bazel's own tools refer to and would download, unless they are declared."""
    if not native.existing_rule("rules_cc"):
        _written_repository(
            name = "rules_cc",
            files = {
                "BUILD.bazel": "",
                "cc/BUILD.bazel": "",
                "cc/defs.bzl": _RULES_CC,
            },
        )
    if not native.existing_rule("remote_coverage_tools"):
        _written_repository(
            name = "remote_coverage_tools",
            files = {"BUILD.bazel": _COVERAGE},
        )
    for name in ["java", "proto"]:
        if not native.existing_rule("rules_" + name):
            native.local_repository(
                name = "rules_" + name,
                path = "/usr/share/bazel/rules/" + name,
            )
