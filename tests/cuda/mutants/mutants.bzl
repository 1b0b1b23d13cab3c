"""Files whose checks or waits can be taken out one at a time, while a program runs."""

def _mutated_files_impl(ctx):
    listing = ctx.actions.declare_file(ctx.label.name + ".tsv")
    root = ctx.label.name + "_copies"
    copies = [ctx.actions.declare_file("{}/gradus/{}".format(root, src.short_path)) for src in ctx.files.srcs]
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [ctx.file._mutate.path, ctx.attr.what, listing.path, str(ctx.attr.first)] +
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
    doc = """Copies of files that ask mutant() (mutant.h) for each of their checks, or each of their waits.

    Its files are the copies of *.cc; as a dependency it has the headers. Output group `listing`: the mutants.""",
    attrs = {
        "first": attr.int(default = 1, doc = "Number of the first mutant."),
        "srcs": attr.label_list(allow_files = [".h", ".cc"], mandatory = True),
        "what": attr.string(default = "checks", values = ["checks", "waits"]),
        "_mutate": attr.label(default = "//tests/cuda/mutants:mutate.py", allow_single_file = True),
    },
)
