"""What is installed: headers, one library, package files. See docs/internals/architecture.md, "Installation"."""

def _package_impl(ctx):
    libraries = []
    flags = []
    for linker_input in ctx.attr.library[CcInfo].linking_context.linker_inputs.to_list():
        flags += linker_input.user_link_flags
        for library in linker_input.libraries:
            archive = library.static_library or library.pic_static_library
            if archive:
                libraries.append(archive)

    # All objects in one archive: a program gets those that it refers to, so alwayslink has no effect.
    archive = ctx.actions.declare_file(ctx.label.name + "_archive/libgradus.a")
    arguments = ctx.actions.args()
    arguments.add(archive)
    arguments.add_all(libraries)
    ctx.actions.run_shell(
        inputs = libraries,
        outputs = [archive],
        arguments = [arguments],
        command = """
            set -e
            out=$1
            shift
            {
              echo "create $out"
              for library; do echo "addlib $library"; done
              echo save
            } | ar -M
        """,
        mnemonic = "MakeArchive",
    )

    # Those of this repository, which have an include_prefix. make_package.py takes the ones that gradus.h leads to.
    headers = [
        header
        for header in ctx.attr.library[CcInfo].compilation_context.headers.to_list()
        if "/_virtual_includes/" in header.path and not header.path.count("/external/")
    ]
    tree = ctx.actions.declare_directory(ctx.label.name)
    arguments = ctx.actions.args()
    arguments.use_param_file("%s", use_always = True)
    arguments.set_param_file_format("multiline")
    arguments.add("--out=" + tree.path)
    arguments.add("--version=" + ctx.attr.version)
    arguments.add_all(flags, format_each = "--link-flag=%s", uniquify = True)
    arguments.add(archive, format = "--library=%s")
    arguments.add_all(ctx.files.programs, format_each = "--program=%s")
    arguments.add_all(ctx.files.templates, format_each = "--template=%s")
    arguments.add_all(ctx.files.docs, format_each = "--doc=%s")
    arguments.add_all(headers, format_each = "--header=%s")
    ctx.actions.run(
        executable = "/usr/bin/python3",
        inputs = headers + [archive] + ctx.files.programs + ctx.files.templates + ctx.files.docs + [ctx.file._tool],
        outputs = [tree],
        arguments = [ctx.file._tool.path, arguments],
        mnemonic = "MakePackage",
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

gradus_package = rule(
    implementation = _package_impl,
    doc = "A folder laid out as an installation prefix.",
    attrs = {
        "docs": attr.label_list(allow_files = True),
        "library": attr.label(mandatory = True, providers = [CcInfo]),
        "programs": attr.label_list(),
        "templates": attr.label_list(allow_files = True),
        "version": attr.string(mandatory = True),
        "_tool": attr.label(default = "//bazel/package:make_package.py", allow_single_file = True),
    },
)
