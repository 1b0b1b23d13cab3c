#!/usr/bin/env bash
# Prints registers, occupancy and memory traffic of each kernel. Needs a CUDA toolkit (CUDA_HOME, default
# /usr/local/cuda), no GPU. Status 1: a kernel exceeds a limit and is no known exception (report/known_exceptions.h).
#
#   tools/gpu_lab/report.sh [--brief]        # --brief: the exceptions alone
set -eu
cd "$(dirname "$0")/../.."
bazel build --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/gradus/bazel" --define=cuda_arch= \
  //tools/gpu_lab/report:{kernel_report,resources}
exec bazel-bin/tools/gpu_lab/report/kernel_report "$@" bazel-bin/tools/gpu_lab/report/resources.tsv
