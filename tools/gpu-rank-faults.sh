#!/usr/bin/env bash
# Tests the training of ranks on emulated GPUs when one of them fails, many times over.
#
#   tools/gpu-rank-faults.sh [OPTIONS]    --help lists them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

run_program tests/cuda/ranks rank_faults "$@"
