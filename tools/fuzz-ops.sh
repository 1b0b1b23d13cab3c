#!/usr/bin/env bash
# Looks for shapes at which an op is wrong, at all sizes that stand in its kernels.
#
#   tools/fuzz-ops.sh [OPTIONS]    --help lists them
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# Many threads on few cores: they wait asleep.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
run_program tests/ops fuzz_ops "$@"
