#!/usr/bin/env bash
# Removes each barrier, bound and mask of the kernels in turn, and prints the removals that no check of kernels notices.
# Needs a CUDA toolkit (CUDA_HOME, default /usr/local/cuda), no GPU.
#
#   tools/gpu_lab/mutants.sh [--every N] [--seeds N] [--jobs N] [NUMBER...]
set -eu
cd "$(dirname "$0")/../.."
bazel build --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/gradus/bazel" //tools/gpu_lab/mutants:{mutated_checks,listing}
place=bazel-bin/tools/gpu_lab/mutants
exec python3 tools/gpu_lab/mutants/mutants.py "$place/mutated_checks" "$place/mutated.tsv" "$@"
