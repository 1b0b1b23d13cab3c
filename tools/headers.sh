#!/usr/bin/env bash
# Compiles public headers, and programs of docs and examples, under strict warnings: g++ 12, clang 16 and 19.
#
#   tools/headers.sh [OPTIONS of tests/install/warnings.sh]
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} != @(-h|--help) ]] || usage
ensure_packages "$PACKAGES"
exec "$root/tests/install/warnings.sh" "$@"
