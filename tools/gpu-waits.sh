#!/usr/bin/env bash
# Removes each wait of collectives on GPUs in turn (tools/gpu_waits/waits.py), in a copy of the tree, and prints how
# many runs of the tests of ranks on emulated GPUs notice that. Needs a CUDA toolkit (CUDA_HOME, default
# /usr/local/cuda), no GPU.
#
#   tools/gpu-waits.sh [--seeds N] [--jobs N] [TEXT...]    TEXT: only waits whose names contain one of these texts
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} != --help ]] || usage
copy=$(cache_dir)/gpu-waits
mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name 'bazel-*' -exec rm -rf {} +
(cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cf - -T -) |
  tar -xf - -C "$copy"
exec python3 "$root/tools/gpu_waits/run.py" "$copy" "$(cache_dir)/bazel" "$@"
