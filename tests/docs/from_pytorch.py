"""Compares Gradus' names and options with PyTorch's. Needs torch, which tests do not: after tools/launchers.sh, which
installs it,

    ~/.cache/gradus/torchrun/bin/python tests/docs/from_pytorch.py

Names of PyTorch in the table of functions of docs/guide/from-pytorch.md exist in PyTorch. Options of layers, losses,
optimizers, schedules and functions have the names, defaults and order of PyTorch's signatures. Prints what differs and
is not listed on the page.
"""
import inspect
import os
import re

import torch

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
PAGE = os.path.join(ROOT, "docs", "guide", "from-pytorch.md")
PLACES = (torch, torch.nn.functional, torch.Tensor, torch.linalg, torch.fft, torch.nn.utils.rnn)
REQUIRED = "required"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


# ---- C++ headers ----

def headers(*folders):
    for folder in folders:
        for place, _, names in os.walk(os.path.join(ROOT, folder)):
            for name in sorted(names):
                if name.endswith(".h"):
                    yield re.sub(r"//[^\n]*", "", read(os.path.join(place, name)))


def split(text, separator):
    """Splits at separators outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{<") - (c in ")]}>" and text[i - 1:i + 1] != "->")
        if c == separator and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p.strip() for p in parts + [text[start:]]]


def value(text):
    """A C++ default as a Python value: {0.9, 0.999} as [0.9, 0.999], kNone as "none", {} as None."""
    text = text.strip().rstrip("f")
    if re.fullmatch(r"(\w+::)*k[A-Z]\w*", text):
        return text.split("::")[-1][1:].lower()
    text = {"{}": "None", "true": "True", "false": "False", "std::nullopt": "None"}.get(text, text)
    try:
        return eval(re.sub(r"(\d)'(\d)", r"\1\2", text).replace("{", "[").replace("}", "]"), {})
    except (SyntaxError, NameError):
        return text


def declared(text):
    """[(name, default)] of "double low = -1, high = 1", or of one argument of a function."""
    text = re.sub(r'Required<(.*?), "\w+">', r"Required<\1>", " ".join(text.split()))
    first, *others = split(text, ",")
    match = re.match(r"(?:const )?[\w:]+(?:<.*>)?(?:\s*[&*])?\s+(.*)", first)
    if not match:
        return []
    found = []
    for part in [match[1]] + others:
        name, _, default = part.partition("=")
        required = "Required<" in text or not default
        found.append((name.strip(), REQUIRED if required else value(default)))
    return found


def structs(text):
    """{"AdamOptions": [("lr", 0.001), ...]}: the members before the first function or static member."""
    found = {}
    for match in re.finditer(r"struct (\w+Options) \{(?:\n(.*?)^)?\};", text, re.S | re.M):
        found[match[1]] = fields = []
        for statement in split(match[2] or "", ";"):
            if not statement or re.match(r"static|using|template|enum|struct|void|bool operator|\w+\(", statement):
                break
            fields += declared(statement)
    return found


class Cpp:
    def __init__(self):
        text = "\n".join(headers("autograd", "nn", "optim", "tensor/ops"))
        self.structs = structs(text)
        for name, other in re.findall(r"using (\w+Options) = (\w+)(?:<\w+>)?;", text):
            if other in self.structs:
                self.structs.setdefault(name, self.structs[other])
        self.structs["NoOptions"] = []
        self.functions = {}
        for name, arguments in re.findall(r"^(?:Tensor|\w+Result|std::\w+<.*?>) (\w+)\(([^;]*?)\);", text, re.M | re.S):
            self.functions.setdefault(name, []).append(self.arguments(arguments))
        # Options of a class: XOptions, or the struct that the class or its alias names.
        self.classes = {name.removesuffix("Options"): fields for name, fields in self.structs.items()}
        for name, options in re.findall(r"class (\w+)[\w ]*: public \w+<(\w+Options)\b", text):
            self.classes.setdefault(name, self.structs.get(options))
        for name, base, options in re.findall(r"using (\w+) =\s*(\w+)<([^;]*);", text):
            first = split(options.rstrip("> "), ",")[0].split("<")[0]
            if first in self.structs:
                self.classes[name] = self.structs[first]
            elif base == "Loss":
                self.classes[name] = self.functions[first.split("::")[-1]][0]
            elif base.removesuffix("Of") in self.classes:
                self.classes[name] = self.classes[base.removesuffix("Of")]

    def arguments(self, text):
        """The options of a function that have defaults. Other arguments are given by position."""
        found = []
        for argument in split(text, ","):
            options = re.match(r"(?:const )?(?:\w+::)*(\w+Options)(?:<\w+>)?&? \w+", argument)
            found += self.structs[options[1]] if options and options[1] in self.structs else declared(argument)
        return [(name, default) for name, default in found if default != REQUIRED]


# ---- PyTorch ----

def python_value(default):
    if default is inspect.Parameter.empty:
        return REQUIRED
    if isinstance(default, str):
        return default.lower()
    return list(default) if isinstance(default, tuple) else default


def signature(f):
    """[(name, default)], None for functions without a signature."""
    is_recurrent = isinstance(f, type) and issubclass(f, torch.nn.RNNBase)
    if is_recurrent:
        f = torch.nn.RNNBase
    try:
        parameters = inspect.signature(f).parameters
    except (ValueError, TypeError):
        return None
    if "kwargs" in parameters:
        return None
    return [(n, python_value(p.default)) for n, p in parameters.items() if not (is_recurrent and n == "mode")]


def equal(a, b):
    """Whether Gradus' default a means PyTorch's b. 0, -1 and false may stand for None."""
    if b is None or callable(b):
        return a in (None, 0, -1, False, "none") if b is None else a == b.__name__
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return abs(a - b) <= 1e-12 * abs(b)
    return a == b


# ---- the page ----

def names_in(cell):
    return re.findall(r"`(\w+)`", cell)


class Page:
    def __init__(self):
        text = read(PAGE)
        self.functions = text.split("## Functions")[1]
        self.renamed, self.absent, self.extra = {}, set(), set()
        for row in self.rows(text.split("## Arguments of layers")[1].split("\n## ")[0]):
            theirs, ours = names_in(row[0]), names_in(row[1])
            self.extra.update(re.findall(r"`(\w+) =", row[1]))
            if row[1] == "none":
                self.absent.update(theirs)
            else:
                for i, name in enumerate(theirs):
                    if ours:
                        self.renamed.setdefault(name, set()).add(ours[min(i, len(ours) - 1)])
        self.differing = [(names_in(row[0]), names_in(row[1]))
                          for row in self.rows(text.split("## Options that differ")[1].split("\n## ")[0])]

    def lists(self, name, option):
        return any(option in options and (name in names or not names) for options, names in self.differing)

    def rows(self, section):
        rows = re.findall(r"^\| .* \|$", section, re.M)[2:]
        return [[c.strip() for c in row.strip("| ").split(" | ")] for row in rows]

    def names(self):
        return [n for row in re.findall(r"^\| (.*?) \|", self.functions, re.M) for n in re.findall(r"`([\w.]+)`", row)]

    def gradus_name(self, name, options):
        for other in [name, name.lower()] + sorted(self.renamed.get(name, ())):
            if other in options:
                return other
        return None


def differences(page, name, ours, theirs):
    """Yields (option, text) for what differs between Gradus' options and PyTorch's arguments."""
    options, matched = dict(ours), []
    for argument, default in theirs:
        if argument in page.absent or argument in ("params", "optimizer"):
            continue
        option = page.gradus_name(argument, options)
        if option is None:
            yield argument, "missing"
            continue
        matched.append(option)
        if not equal(options[option], default):
            yield option, f"{options[option]} for {default}"
    for option in options:
        if option not in matched and option not in page.extra:
            yield option, "PyTorch has none"
    order = [o for o in options if o in matched]
    if order != matched:
        moved = next(a for a, b in zip(order, matched) if a != b)
        yield moved, f"order {' '.join(order)} for {' '.join(matched)}"


def main():
    page, cpp = Page(), Cpp()
    missing = [n for n in page.names() if not any(hasattr(p, n.split(".")[-1]) for p in PLACES)]
    print(f"{len(page.names())} names, PyTorch {torch.__version__}; not there: {' '.join(missing) or 'none'}")
    found, compared = [], 0
    for place in (torch.nn, torch.optim, torch.optim.lr_scheduler):
        for name, options in sorted(cpp.classes.items()):
            if name in ("Buffer", "Parameter"):
                continue
            theirs = hasattr(place, name) and signature(getattr(place, name))
            if theirs and options is not None:
                compared += 1
                found += [(name, o, t) for o, t in differences(page, name, options, theirs)]
    for name, overloads in sorted(cpp.functions.items()):
        places = [p for p in (torch.nn.functional, torch.fft, torch) if hasattr(p, name)]
        theirs = places and signature(getattr(places[0], name))
        if theirs:
            theirs = [(n, d) for n, d in theirs if d != REQUIRED]
            compared += 1
            every = [list(differences(page, name, options, theirs)) for options in overloads]
            found += [(name, o, t) for o, t in min(every, key=len)]
    unknown = [f for f in found if not page.lists(*f[:2])]
    for name, option, what in unknown:
        print(f"{name}: {option}: {what}")
    print(f"{compared} compared, {len(found)} differences, of which the page does not list {len(unknown)}")
    raise SystemExit(bool(missing or unknown))


main()
