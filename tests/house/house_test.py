"""Checks the layout of the tree: includes without circles, layers, files per folder, links of pages; and the trimming of
the build cache.

    python3 tests/house/house_test.py [FOLDER]
"""
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "."
CODE = ("tensor", "autograd", "nn", "optim", "data", "io", "models", "distributed", "train", "vision")
# Headers that lead to a whole layer: a folder's own umbrella is no part of its walls.
UMBRELLAS = {"gradus.h", "core.h", "autograd/ops/ops.h", "nn/nn.h", "optim/optim.h", "data/data.h",
             "distributed/distributed.h", "train/train.h", "models/models.h"}
MOST_FILES = 40


def files(folders, endings):
    for folder in folders:
        for place, below, names in os.walk(os.path.join(ROOT, folder)):
            below[:] = [b for b in below if not b.startswith((".", "bazel-"))]
            for name in names:
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(place, name), ROOT)


def text(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def includes():
    graph = {}
    for path in list(files(CODE, (".h", ".cc"))) + ["gradus.h", "core.h"]:
        graph[path] = re.findall(r'^#include "gradus/([^"]+)"', text(path), re.M)
    return graph


def circles(graph):
    """The strongly connected parts of more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(100000)
    for node in graph:
        if node not in index:
            visit(node)
    return found


def room(path):
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if folder.endswith("/internal") else folder


class House(unittest.TestCase):
    def test_files_include_each_other_in_one_direction(self):
        graph = includes()
        self.assertGreater(len(graph), 500, "the sources were not found")
        self.assertEqual(circles(graph), [])

    def test_folders_include_each_other_in_one_direction(self):
        folders = {}
        for path, heads in includes().items():
            if path in UMBRELLAS:
                continue
            below = folders.setdefault(room(path), set())
            below.update(room(h) for h in heads if room(h) != room(path) and h not in UMBRELLAS)
        self.assertEqual(circles(folders), [])

    def test_what_is_internal_is_included_from_its_own_room_alone(self):
        wrong = [f"{path} includes {h}" for path, heads in includes().items()
                 for h in heads if "/internal/" in h and room(h) != room(path)]
        self.assertEqual(wrong, [])

    def test_no_folder_has_too_many_files_and_each_is_in_the_architecture(self):
        page = text("docs/internals/architecture.md")
        crowded, unknown = [], []
        for folder in CODE + ("examples", "benchmarks", "tests", "tools", "bazel"):
            for place, below, names in os.walk(os.path.join(ROOT, folder)):
                below[:] = [b for b in below if b not in ("__pycache__", "golden", "found", "internal")]
                path = os.path.relpath(place, ROOT)
                names = [n for n in names if not n.endswith((".pyc", ".bazel"))]
                if len(names) > MOST_FILES:
                    crowded.append(f"{path}: {len(names)}")
                if names and not path.startswith("tests/") and f"{path}/" not in page:
                    unknown.append(path)
        self.assertEqual(crowded, [])
        self.assertEqual(unknown, [], "docs/internals/architecture.md does not name them")

    def test_links_of_pages_lead_to_files(self):
        pages = list(files(("docs",), (".md",))) + ["README.md", "CHANGELOG.md"]
        links = [(page, link) for page in pages for link in re.findall(r"\]\(([\w-]*[./][\w./-]*)(?:#[\w-]*)?\)", text(page))]
        self.assertGreater(len(links), 300)
        self.assertEqual([link for link in links
                          if not os.path.exists(os.path.join(ROOT, os.path.dirname(link[0]), link[1]))], [])

    def test_commands_that_pages_and_the_list_name_exist(self):
        run = os.path.abspath(os.path.join(ROOT, "run"))
        listed = "".join(subprocess.run([run, how], capture_output=True, text=True, check=True).stdout
                         for how in ("list", "tools"))
        commands = set(re.findall(r"^  ([a-z]\S*)", listed, re.M)) | {"list"}
        for path in list(files(("docs",), (".md",))) + ["README.md"]:
            commands.update(re.findall(r"\./run ([a-z][\w-]*)", text(path)))
            commands.update(re.findall(r"\btools/[\w/-]+\.sh", text(path)))
        self.assertLessEqual({"gradus-run", "tools/on-debian.sh"}, commands)
        with tempfile.TemporaryDirectory() as scratch:
            # Stand-ins: this bazel notes what it is to build, and all packages, PyTorch and a CUDA toolkit are there.
            asked = os.path.join(scratch, "asked")
            stand_ins = {"bin/bazel": f'printf "%s\\n" "$@" | grep "^//" >>{asked}; true',
                         "bin/dpkg-query": 'printf "ii  %s\\n" "$@"', "cuda/bin/nvcc": "true",
                         "cache/gradus/torchrun/bin/pip": "true"}
            for name, script in stand_ins.items():
                path = os.path.join(scratch, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("#!/bin/sh\n" + script + "\n")
                os.chmod(path, 0o755)
            environment = dict(os.environ, PATH=f"{scratch}/bin:{os.environ['PATH']}", CUDA_HOME=f"{scratch}/cuda",
                               XDG_CACHE_HOME=f"{scratch}/cache")
            failed = {}
            for command in sorted(commands):
                arguments = [os.path.join(ROOT, command)] if "/" in command else [run, command]
                shown = subprocess.run(arguments + ["--help"], env=environment, capture_output=True, text=True)
                # 127: the program has not been built.
                if shown.returncode not in (0, 127) or not (shown.stdout or shown.returncode):
                    failed[command] = shown.stderr
            self.assertEqual(failed, {})
            with open(asked, encoding="utf-8") as file:
                targets = sorted(set(file.read().split()))
        found = subprocess.run(["bazel", "query", f"set({' '.join(targets)})"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(found.returncode, 0, found.stderr)

    def test_the_cache_of_builds_loses_what_was_read_longest_ago(self):
        tool = os.path.join(ROOT, "bazel", "trim_cache.py")
        with tempfile.TemporaryDirectory() as cache:
            os.mkdir(os.path.join(cache, "inner"))
            for name, when in (("inner/third", 3), ("first", 1), ("second", 2), ("fourth", 4)):
                path = os.path.join(cache, name)
                with open(path, "wb") as file:
                    file.write(bytes(100))
                os.utime(path, (when, 0))
            for limit, left in ((400, ["first", "fourth", "second", "third"]), (399, ["fourth", "third"]), (0, [])):
                subprocess.run([sys.executable, tool, cache, str(limit)], check=True)
                self.assertEqual(sorted(name for _, _, names in os.walk(cache) for name in names), left)


if __name__ == "__main__":
    unittest.main()
