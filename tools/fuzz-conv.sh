#!/usr/bin/env bash
# Searches convolutions and matrix products of random shapes, at each level of processor, between guard pages.
#
#   tools/fuzz-conv.sh [OPTIONS]    --help lists them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

run_program tests/kernels fuzz_conv "$@"
