"""Lays out an installation prefix: make_package.py @ARGUMENTS (see package.bzl).

Of the headers, those are installed that gradus/gradus.h includes, directly or not.
"""
import argparse
import os
import re
import shutil
import sys

# A repository for Bazel, beside which install.sh puts links to the headers and the library.
BAZEL = ("share", "gradus", "bazel")

parser = argparse.ArgumentParser(fromfile_prefix_chars="@")
parser.add_argument("--out", required=True)
parser.add_argument("--version", required=True)
for name in ("--link-flag", "--library", "--program", "--template", "--doc", "--header"):
    parser.add_argument(name, action="append", default=[])


def reachable(headers):
    """headers: by the name under which they are included -> those that gradus/gradus.h leads to."""
    found, todo = set(), ["gradus/gradus.h"]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        if name not in headers:
            sys.exit(f"{name} is included but is no header of //:gradus")
        found.add(name)
        with open(headers[name], encoding="utf-8") as file:
            todo += re.findall(r'#include "(gradus/[^"]+)"', file.read())
    return sorted(found)


def main():
    # Bazel passes the file of arguments without the mark.
    args = parser.parse_args(["@" + sys.argv[1]])

    def install(source, *place, mode=0o644):
        to = os.path.join(args.out, *place)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copyfile(source, to)
        os.chmod(to, mode)

    headers = {re.sub(r"^.*/_virtual_includes/[^/]+/", "", path): path for path in args.header}
    for name in reachable(headers):
        install(headers[name], "include", name)
    for path in args.library:
        install(path, "lib", os.path.basename(path))
    for path in args.program:
        install(path, "bin", os.path.basename(path), mode=0o755)
    for path in args.doc:
        install(path, "share", "doc", "gradus", os.path.basename(path))

    flags = list(dict.fromkeys(args.link_flag))
    unknown = [flag for flag in flags if not flag.startswith("-l") and flag != "-pthread"]
    if unknown:
        sys.exit(f"package files cannot express these link flags: {unknown}")
    values = {
        "VERSION": args.version,
        "LINK_FLAGS": " ".join(flags),
        "BAZEL_LINKOPTS": ", ".join(f'"{flag}"' for flag in flags),
        # Found by name; gomp is where only the compiler looks.
        "LIBRARIES": " ".join(flag[2:] for flag in flags if flag not in ("-pthread", "-lgomp", "-lpthread")),
    }
    places = {
        "GradusConfig.cmake": ("lib", "cmake", "Gradus"),
        "GradusConfigVersion.cmake": ("lib", "cmake", "Gradus"),
        "gradus.pc": ("lib", "pkgconfig"),
        "BUILD.bazel": BAZEL,
        "WORKSPACE": BAZEL,
        "dependencies.bzl": BAZEL + ("bazel",),
        "bazel_tools.bzl": BAZEL + ("bazel",),
    }
    install(os.devnull, *BAZEL, "bazel", "BUILD.bazel")
    for path in args.template:
        name = os.path.basename(path).removesuffix(".in")
        with open(path, encoding="utf-8") as file:
            text = re.sub(r"@([A-Z_]+)@", lambda m: values[m[1]], file.read())
        to = os.path.join(args.out, *places[name], name)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with open(to, "w", encoding="utf-8") as file:
            file.write(text)


main()
