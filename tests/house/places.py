"""Counts the files that one addition touches, by an example that is there: python3 tests/house/places.py

A file of the product or its tests counts if it names the example. Pages, PyTorch's scripts and values, what GPUs gave,
examples and benchmarks do not count. What is over its limit is printed with its files; the exit status is then 1.
"""
import subprocess
import sys

# What is added: its pattern, and how many files it may touch.
EXAMPLES = {
    # functor with its slot, header and source of the op, row of the op table
    "an element-wise op": (r"\b(heaviside|Heaviside)\b", 4),
    # header, source, row of the layer table
    "a layer": (r"\bPixelShuffle\b", 3),
    "an optimizer": (r"\b(lion|Lion\w*|lion_\w+)\b", 8),
    "a data set": (r"\b(FashionMNIST|fashion_mnist)\b", 5),
    "a collective": (r"\b(all_to_all|kAllToAll)\b", 12),
}
LEFT_OUT = ("*.safetensors", "*.txt", "*.md", "tests/nn/layers/*.py", "tests/golden/*.py", "tests/cuda/recorded", "tests/house",
            "benchmarks", "examples")


def main():
    over = False
    for what, (pattern, limit) in EXAMPLES.items():
        found = subprocess.run(["git", "grep", "-lP", pattern, "--"] + [f":!{path}" for path in LEFT_OUT],
                               capture_output=True, text=True, check=True).stdout.split()
        print(f"{what}: {len(found)} of at most {limit}")
        if len(found) > limit:
            over = True
            print("".join(f"  {path}\n" for path in found), end="")
    sys.exit(over)


main()
