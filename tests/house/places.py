"""Lists the files that name an existing op, optimizer, data set or collective: python3 tests/house/places.py

Files of golden values are excluded. docs/internals/adding-an-op.md refers to the list.
"""
import subprocess

EXAMPLES = {
    "an element-wise op": r"\b(heaviside|Heaviside)\b",
    "an optimizer": r"\b(lion|Lion\w*|lion_\w+)\b",
    "a data set": r"\b(FashionMNIST|fashion_mnist)\b",
    "a collective": r"\b(all_to_all|kAllToAll)\b",
}


def main():
    for what, pattern in EXAMPLES.items():
        found = subprocess.run(["git", "grep", "-lP", pattern, "--", ":!*golden*", ":!tests/house", ":!benchmarks", ":!examples"],
                               capture_output=True, text=True, check=True).stdout.split()
        print(f"{what}: {len(found)}")
        for path in found:
            print(f"  {path}")


main()
