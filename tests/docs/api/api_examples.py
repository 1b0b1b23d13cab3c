"""Makes a test of every C++ block in pages of docs: api_examples.py OUT PAGE...

A block becomes the body of a test and must run. What it needs beforehand stands in a comment before it, where readers do not
see it:

    <!-- setup: Tensor x = randn({2, 3}); -->

and what must hold in the end in a comment right after it:

    <!-- check: EXPECT_EQ(y.dim(), 2); -->
"""
import os
import re
import sys

HEAD = """// Made from pages of docs.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "gradus/gradus.h"
#include "gradus/models/mnist_net.h"
#include "gradus/models/resnet.h"

using namespace gradus;

struct Classifier : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 784, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc(flatten(x, 1)); }
};

"""


def main():
    out, pages = sys.argv[1], sys.argv[2:]
    text = HEAD
    for page in sorted(pages):
        name = re.sub(r"\W", "_", os.path.basename(page)[: -len(".md")])
        lines = open(page, encoding="utf-8").read().split("\n")
        setup, block, number, end = "", None, 0, ""
        for at, line in enumerate(lines, 1):
            if block is not None:
                if line.startswith("```"):
                    number += 1
                    text += f"TEST(Api_{name}, Example{number}) {{\n{setup}#line {start} \"{page}\"\n" + "\n".join(block) + "\n"
                    setup, block, end = "", None, "}\n\n"
                elif not line.startswith("#include"):
                    block.append(line)
                continue
            if end and (m := re.match(r"<!-- check: (.*) -->$", line)):
                text += m[1] + "\n"
                continue
            text += end
            end = ""
            if line == "```cpp":
                block, start = [], at + 1
            elif m := re.match(r"<!-- setup: (.*) -->$", line):
                setup += m[1] + "\n"
            elif line.strip():
                setup = ""
    with open(out, "w", encoding="utf-8") as file:
        file.write(text)


main()
