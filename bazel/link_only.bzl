"""A boundary that objects pass and headers do not.

    load("//bazel:link_only.bzl", "link_only")

    link_only(
        name = "cpu",
        deps = [":kernels"],
    )

A target that depends on ":cpu" is linked with the kernels. It is not compiled again when a header of theirs changes.
"""

def _link_only_impl(ctx):
    merged = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    return [CcInfo(linking_context = merged.linking_context)]

link_only = rule(
    implementation = _link_only_impl,
    doc = "Passes on what to link of its deps, and nothing to compile with.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    provides = [CcInfo],
)
