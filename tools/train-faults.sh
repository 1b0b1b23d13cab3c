#!/usr/bin/env bash
# Tests the training of a GAN whose ranks are killed, also in checkpoints, many times over.
#
#   tools/train-faults.sh [OPTIONS]    --help lists them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

run_program tests/distributed/data_parallel train_faults "$@"
