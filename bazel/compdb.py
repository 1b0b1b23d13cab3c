"""Turns `bazel aquery --output=jsonproto` into compile_commands.json: compdb.py WORKSPACE OUTPUT_BASE."""

import json
import sys


def main():
    workspace, output_base = sys.argv[1:]
    commands = []
    for action in json.load(sys.stdin).get("actions", []):
        # Libraries lie outside the workspace; bazel-out is linked from it.
        arguments = [
            output_base + "/" + argument if argument.startswith("external/") else argument
            for argument in action["arguments"]
        ]
        arguments.insert(1, "-I" + output_base + "/gradus_include")
        source = arguments[arguments.index("-c") + 1]
        commands.append({"directory": workspace, "file": source, "arguments": arguments})
    json.dump(commands, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
