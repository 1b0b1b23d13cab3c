"""Compiles a kernel file by nvcc, and writes what each of its kernels needs.

    python3 nvcc.py RESOURCES NVCC [nvcc's arguments]

RESOURCES gets a line for each kernel and architecture, with tabs between: architecture, name, registers of a thread,
bytes of memory that a thread has of its own (what registers spill, and arrays that are not in registers), bytes of
static shared memory, threads of a block at most (0: not said), vector loads, all loads, vector stores, all stores. The
first five are ptxas', the others stand in the PTX.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
MEMORY_OF_THREAD = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
TARGET = re.compile(r"^\.target (sm_\w+)", re.M)
# Of global memory, or of memory whose kind the compiler does not know.
MEMORY = re.compile(r"^\s*(?:@\S+\s+)?(ld|st)((?:\.\w+)*)\s", re.M)


def ptxas_report(text):
    """{(architecture, kernel): [registers, bytes of a thread's memory, static shared bytes]}"""
    found, current = {}, None
    for line in text.splitlines():
        entry = ENTRY.search(line)
        if entry:
            current = found.setdefault((entry[2], entry[1]), [0, 0, 0])
        elif current and MEMORY_OF_THREAD.search(line):
            current[1] += max(map(int, MEMORY_OF_THREAD.search(line).groups()))  # also of what it calls
        elif current and REGISTERS.search(line):
            current[0] = int(REGISTERS.search(line)[1])
            shared = SHARED.search(line)
            current[2] = int(shared[1]) if shared else 0
    return found


def ptx_report(text):
    """{kernel: [threads, vector loads, loads, vector stores, stores]}"""
    found = {}
    for part in re.split(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+", text, flags=re.M)[1:]:
        body = part.split("\n}", 1)[0]
        threads = re.search(r"\.maxntid\s+(\d+)", body)
        counts = {"ld": [0, 0], "st": [0, 0]}
        for kind, suffixes in MEMORY.findall(body):
            if any(space in suffixes for space in (".param", ".local", ".shared")):
                continue
            counts[kind][0] += ".v2" in suffixes or ".v4" in suffixes
            counts[kind][1] += 1
        found[re.match(r"\w+", part)[0]] = [int(threads[1]) if threads else 0] + counts["ld"] + counts["st"]
    return found


def readable(names):
    lines = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, lines.split("\n")))


def main(resources, nvcc, *arguments):
    with tempfile.TemporaryDirectory() as kept:
        run = subprocess.run([nvcc, "-Xptxas=-v", "--keep", "--keep-dir=" + kept] + list(arguments),
                             stderr=subprocess.PIPE, text=True)
        if run.returncode:
            sys.stderr.write("".join(l + "\n" for l in run.stderr.splitlines() if not l.startswith("ptxas info")))
            return run.returncode
        used = ptxas_report(run.stderr)
        ptx = {}
        for path in glob.glob(os.path.join(kept, "*.ptx")):
            with open(path) as file:
                text = file.read()
            ptx[TARGET.search(text)[1]] = ptx_report(text)
    names = readable(sorted({kernel for _, kernel in used}))
    lines = sorted("\t".join(map(str, [architecture, names[kernel]] + numbers + ptx[architecture][kernel])) + "\n"
                   for (architecture, kernel), numbers in used.items())
    with open(resources, "w") as file:
        file.writelines(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
