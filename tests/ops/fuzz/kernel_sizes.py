"""Reads the sizes at which kernels change what they do, where they are written: python3 kernel_sizes.py OUT FILE...

Every whole number in the source of a kernel may be one: the length of a tile, the width of a vector, the number of
elements from which on another loop is taken. So all of them are collected, by the op whose slot the file defines; those
of a header, and of the file that belongs to it, count for every file that includes it. Nothing is to be done for a new
kernel or a new constant. A number that is no size costs the search a few shapes.
"""
import re
import sys

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', re.S)
INCLUDE = re.compile(r'#include "gradus/tensor/cpu/([\w/]+)\.h"')
SLOT = re.compile(r'\w+_kernel\s*\{\s*"(\w+)"')
FUNCTOR = re.compile(r"(?:Unary|Binary|Ternary)<(\w+)")
LIST = re.compile(r"using (\w+) =\s*raw::SlotList<(.*?)>;", re.S)
DEFINED = re.compile(r"template struct (?:DefineSlots<(\w+)>|((?:Unary|Binary|Ternary)<\w+))")
NAME = re.compile(r'struct (\w+) : \w+ \{\s*static constexpr const char\* name = "(\w+)"')
SHORT_NAME = re.compile(r'GRADUS_(?:UNARY|BINARY)_FUNCTOR\((\w+), \w+, "(\w+)"')
SHIFT = re.compile(r"(?<![\w.])(?:int64_t\s*[({]\s*)?(\d+)\s*[)}]?\s*<<\s*(\d+)(?![\w.])")
NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")
LEAST, MOST = 3, 1 << 20


def sizes_in(text):
    """The numbers of a source, without comments, strings and what is written as a float or in hexadecimal."""
    found = {int(a) << int(b) for a, b in SHIFT.findall(text) if int(b) < 40}
    found |= {int(n) for n in NUMBER.findall(SHIFT.sub(" ", text))}
    return {n for n in found if LEAST <= n <= MOST}


def main(out, paths):
    files, names, lists = {}, {}, {}  # path -> text, functor -> op, list of slots -> functors
    for path in paths:
        with open(path) as f:
            text = f.read()
        names.update(NAME.findall(text) + SHORT_NAME.findall(text))
        lists.update((name, FUNCTOR.findall(slots)) for name, slots in LIST.findall(COMMENT.sub(" ", text)))
        if "tensor/cpu/" in path:
            files[path.split("tensor/cpu/", 1)[1]] = text
    stems = {}  # stem -> [its .h and .cc, without comments]
    for name, text in files.items():
        # Includes are strings: they are read before these are taken out.
        stems.setdefault(name.rsplit(".", 1)[0], []).append((COMMENT.sub(" ", text), INCLUDE.findall(text)))

    def closure(stem, seen):
        if stem not in seen and stem in stems:
            seen.add(stem)
            for _, included in stems[stem]:
                for other in included:
                    closure(other, seen)
        return seen

    by_op = {}
    for name, text in files.items():
        defined = [lists.get(slots) or FUNCTOR.findall(slot) for slots, slot in DEFINED.findall(text)]
        ops = SLOT.findall(text) + [names[functor] for functors in defined for functor in functors]
        if not ops:
            continue
        sizes = set()
        for stem in closure(name.rsplit(".", 1)[0], set()):
            for part, _ in stems[stem]:
                sizes |= sizes_in(part)
        for op in ops:
            by_op.setdefault(op, set()).update(sizes)
    if len(by_op) < 150:
        sys.exit("kernel_sizes.py: found the slots of %d ops only; how are they defined today?" % len(by_op))
    with open(out, "w") as f:
        for op in sorted(by_op):
            f.write('{"%s", {%s}},\n' % (op, ", ".join(map(str, sorted(by_op[op])))))


main(sys.argv[1], sys.argv[2:])
