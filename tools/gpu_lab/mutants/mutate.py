"""Writes copies of kernel files in which each check can be removed while the program runs.

    python3 mutate.py LIST SOURCE=COPY...

LIST gets a line for each mutant, with tabs between: number, kind, file, line, source text. In the copies, the function
mutant(number) returns whether the program runs this mutant. Kinds of mutants:

  barrier     __syncthreads() and __syncwarp() are left out
  mask        the highest lane is left out of the mask of a shuffle, ballot or __syncwarp()
  bound       a comparison of a kernel is removed: `i < n` is always true, `i >= n` never, std::min is one of its operands
  off by one  the same, wrong by one: `i < n` becomes `i <= n`
  one thread  `lane == 0`, which selects the thread that writes, is always true
  alignment   the host's check whether addresses and sizes are multiples of a vector's size always succeeds

Comparisons of loops that the compiler unrolls are no bounds, nor are those of functors, which access no memory.
"""
import re
import sys

# Operators on values.
NO_BOUNDS = ("element.h", "reduce_ops.h")
COMPARISON = re.compile(r" (<|<=|>|>=|==|!=) ")


def without_comments(text):
    """The text with blanks in place of comments and literals."""
    blank = lambda match: re.sub(r"[^\n]", " ", match[0])
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^#(?!pragma unroll)[^\n]*', blank, text, flags=re.S | re.M)


def closing(text, at, pair):
    """Where the bracket that opens at `at` is closed."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == pair[0]) - (text[i] == pair[1])
        if depth == 0:
            return i
    raise ValueError("a bracket that is not closed: " + text[at:at + 60])


def device_bodies(text):
    """The bodies of functions that run on the device, as pairs (begin, end)."""
    bodies, end = [], 0
    for match in re.finditer(r"__(?:global|device)__", text):
        at = match.end()
        if at < end:
            continue
        while text[at] not in "{;":
            at = closing(text, at, "()") + 1 if text[at] == "(" else at + 1
        if text[at] == "{":
            end = closing(text, at, "{}")
            bodies.append((at, end))
    return bodies


def term(text, operator):
    """The comparison around an operator at (begin, end): ((begin, end of the left side), (begin, end of the right))."""
    text = text.replace("::", "__")  # a name's colons end nothing
    left, depth = operator[0], 0
    while True:
        c = text[left - 1]
        if c in ")]":
            depth += 1
        elif c in "([":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (c in "?:;{},!" or text[left - 2:left] in ("&&", "||") or re.search(r"[^<>=!]=$", text[:left])):
            break
        elif depth == 0 and re.search(r"\breturn $", text[:left]):
            break
        left -= 1
    right, depth = operator[1], 0
    while True:
        c = text[right]
        if c in "([":
            depth += 1
        elif c in ")]":
            if depth == 0:
                break
            depth -= 1
        elif depth == 0 and (c in "?:;{}," or text[right:right + 2] in ("&&", "||")):
            break
        right += 1
    strip = lambda b, e: (b + len(text[b:e]) - len(text[b:e].lstrip()), b + len(text[b:e].rstrip()))
    return strip(left, operator[0]), strip(operator[1], right)


class Mutator:
    def __init__(self):
        self.mutants = []

    def new(self, kind, name, text, begin, end, becomes=""):
        line = text.count("\n", 0, begin) + 1
        self.mutants.append((kind, name, line, " ".join(text[begin:end].split()) + becomes))
        return "::gradus::cuda::mutant(%d)" % len(self.mutants)

    def mutate(self, name, text):
        code = without_comments(text)
        edits = []  # (begin, end, what takes its place)
        base = name.rsplit("/", 1)[-1]
        bodies = device_bodies(code)
        for begin, end in bodies:
            self.kernel(name, base, text, code, begin, end, edits)
        self.host(name, text, code, bodies, edits)
        behind = len(text)
        for begin, end, new in sorted(edits, reverse=True):
            if end > behind:
                raise ValueError("%s: a check within a check, which this cannot mutate: %s" % (name, text[begin:end]))
            text, behind = text[:begin] + new + text[end:], begin
        if edits:
            text = '#include "gradus/tools/gpu_lab/mutants/mutant.h"\n#line 1 "%s"\n' % name + text
        return text

    def kernel(self, name, base, text, code, begin, end, edits):
        for match in re.finditer(r"\b__sync(?:threads|warp)\(", code[begin:end]):
            at = begin + match.start()
            until = code.index(";", at)
            edits.append((at, at, "{ if (!%s) " % self.new("barrier", name, text, at, until)))
            edits.append((until + 1, until + 1, " }"))
        for match in re.finditer(r"\b__(?:shfl(?:_xor)?_sync|ballot_sync|syncwarp)\(", code[begin:end]):
            at = begin + match.end()
            until = at
            while code[until] not in ",)":
                until = closing(code, until, "()") + 1 if code[until] == "(" else until + 1
            if until > at:
                edits.append((at, until, "::gradus::cuda::mutant_mask(%s, %s)" % (
                    self.new("mask", name, text, at, until), text[at:until])))
        if base in NO_BOUNDS:
            return
        for match in re.finditer(r"\bstd::min(?:<\w+>)?\(", code[begin:end]):
            at = begin + match.start()
            until = closing(code, begin + match.end() - 1, "()") + 1
            both = text[begin + match.end():until - 1].split(", ")
            if len(both) != 2:
                raise ValueError("std::min of other than two: " + text[at:until])
            first, second = [self.new("bound", name, text, at, until, " is " + one) for one in both]
            edits.append((at, until, "(%s ? %s : %s ? %s : %s)" % (first, both[0], second, both[1], text[at:until])))
        for match in COMPARISON.finditer(code[begin:end]):
            operator = begin + match.start(), begin + match.end()
            (a, b), (c, d) = term(code, operator)
            line = code.rfind("\n", 0, a) + 1
            before = code[code.rfind("\n", 0, line - 1) + 1:line] if line else ""
            statement = code[line:a]
            if "if constexpr" in statement or "static_assert" in statement or "constexpr" in statement:
                continue
            if re.match(r"\s*for \(", statement) and "#pragma unroll" in before and "unroll 1\n" not in before:
                continue
            x, sign, y = text[a:b], match[1], text[c:d]
            edit = lambda kind, wrong: "(%s ? %s : " % (self.new(kind, name, text, a, d), wrong)
            if sign in ("==", "!="):
                if not re.search(r"\bthreadIdx\.x\b|\blane\b|\bgroup\b", x + " " + y):
                    continue
                new = edit("one thread", "true" if sign == "==" else "false")
                edits.append((a, d, new + "%s %s %s)" % (x, sign, y)))
                continue
            always = edit("bound", "true" if sign in ("<", "<=") else "false")
            near = edit("off by one", {"<": "(%s) <= (%s)", "<=": "(%s) - 1 <= (%s)", ">": "(%s) - 1 > (%s)",
                                       ">=": "(%s) > (%s)"}[sign] % (x, y))
            edits.append((a, d, "%s%s%s %s %s))" % (always, near, x, sign, y)))

    def host(self, name, text, code, bodies, edits):
        on_device = lambda at: any(begin <= at < end for begin, end in bodies)
        for match in re.finditer(r"(?<!bool )\bis_aligned\(", code):
            if not on_device(match.start()):
                a, d = match.start(), closing(code, match.end() - 1, "()") + 1
                edits.append((a, d, "(%s || %s)" % (self.new("alignment", name, text, a, d), text[a:d])))
        for match in re.finditer(r" % [^;=]*? (==) 0\b|\bif \(([^;{}]*? % [^;{}]*)\) return", code):
            if on_device(match.start()):
                continue
            if match[1]:
                (a, b), (c, d) = term(code, (match.start(1) - 1, match.end(1) + 1))
                new = self.new("alignment", name, text, a, d)
                edits.append((a, d, "(%s || %s)" % (new, text[a:d])))
            else:
                a, d = match.start(2), match.end(2)
                new = self.new("alignment", name, text, a, d)
                edits.append((a, d, "!%s && (%s)" % (new, text[a:d])))


def main(listing, *pairs):
    mutator = Mutator()
    for pair in pairs:
        source, copy = pair.split("=")
        with open(source, encoding="utf-8") as file:
            text = file.read()
        with open(copy, "w", encoding="utf-8") as file:
            file.write(mutator.mutate(source, text))
    with open(listing, "w", encoding="utf-8") as file:
        for number, mutant in enumerate(mutator.mutants, 1):
            file.write("\t".join(map(str, (number,) + mutant)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
