#!/usr/bin/env bash
# Tells whether fuzz-ops finds mistakes that are made in kernels on purpose.
#
#   tools/fuzz-edits.sh [OPTIONS of tests/ops/fuzz/fuzz_edits.py]
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

ensure_packages "$PACKAGES
git                   lists the sources, of which the script makes a copy"
exec python3 "$root/tests/ops/fuzz/fuzz_edits.py" "$@"
