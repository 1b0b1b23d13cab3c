#!/usr/bin/env bash
# Tests ranks under a scheduler that a seed drives, many seeds.
#
#   tools/simulate.sh [OPTIONS]    --help lists them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

run_program tests/distributed/simulation simulate "$@"
