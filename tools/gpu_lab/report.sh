#!/usr/bin/env bash
# Prints registers, occupancy and memory traffic (on the emulated device) of each kernel. Needs a CUDA toolkit
# (CUDA_HOME, default /usr/local/cuda), no GPU. Status 1: a kernel or case exceeds a limit without an entry in
# report/known_exceptions.h, or an entry is unused; 2: an error of the report.
#
#   tools/gpu_lab/report.sh [--brief]        # --brief: faults and totals alone
set -eu
cd "$(dirname "$0")/../.."
bazel build --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/gradus/bazel" --config=optimized_gpu_code \
  //tools/gpu_lab/report:{kernel_report,resources}
exec bazel-bin/tools/gpu_lab/report/kernel_report "$@" bazel-bin/tools/gpu_lab/report/resources.tsv
