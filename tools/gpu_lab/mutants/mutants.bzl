"""Copies of kernel files whose checks can be removed one at a time while a program runs."""

def _mutated_files_impl(ctx):
    listing = ctx.actions.declare_file(ctx.label.name + ".tsv")
    root = ctx.label.name + "_copies"
    copies = [ctx.actions.declare_file("{}/gradus/{}".format(root, src.short_path)) for src in ctx.files.srcs]
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [ctx.file._mutate.path, listing.path] +
                    ["{}={}".format(src.path, copy.path) for src, copy in zip(ctx.files.srcs, copies)],
        inputs = ctx.files.srcs + [ctx.file._mutate],
        outputs = copies + [listing],
        mnemonic = "Mutate",
    )
    headers = [copy for copy in copies if copy.extension == "h"]
    context = cc_common.create_compilation_context(
        headers = depset(headers),
        includes = depset([listing.dirname + "/" + root]),
    )
    return [
        DefaultInfo(files = depset([copy for copy in copies if copy not in headers])),
        OutputGroupInfo(listing = depset([listing])),
        CcInfo(compilation_context = context),
    ]

mutated_files = rule(
    implementation = _mutated_files_impl,
    doc = """Copies of kernel files that ask mutant() (mutant.h) before each of their checks.

    Its files are the copies of *.cc; as a dependency it has the headers. Output group `listing`: the mutants.""",
    attrs = {
        "srcs": attr.label_list(allow_files = [".h", ".cc"], mandatory = True),
        "_mutate": attr.label(default = "//tools/gpu_lab/mutants:mutate.py", allow_single_file = True),
    },
)
