#!/usr/bin/env bash
# Tests ranks that are killed, stopped or go astray, many times over.
#
#   tools/faults.sh [OPTIONS]    --help lists them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

run_program tests/distributed/launch faults "$@"
