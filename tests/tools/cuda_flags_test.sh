#!/usr/bin/env bash
# find_cuda of tools/lib.sh: with which flags ./run builds programs, by what the machine has. Each check runs in a
# process of its own, with folders that stand for the cache, a toolkit and the source tree.
set -euo pipefail

library=$PWD/tools/lib.sh
place=$(mktemp -d)
trap 'rm -rf -- "$place"' EXIT
failures=0

make_toolkit() {
  mkdir -p "$1"/{bin,include,lib64}
  touch "$1"/{bin/nvcc,include/cublasLt.h,include/cudnn_graph.h,include/nccl.h,lib64/libcudart_static.a}
}

# check NAME DRIVER CUDA_HOME EXPECTED: compares "flags; toolkit".
check() {
  local found
  found=$(
    mkdir -p "$place/tree/tools"
    cp "$library" "$place/tree/tools/lib.sh"
    export XDG_CACHE_HOME=$place/cache CUDA_HOME=$3
    . "$place/tree/tools/lib.sh"
    eval "has_gpu_driver() { $2; }"
    find_cuda
    printf '%s; %s' "${device_flags[*]}" "$CUDA_HOME"
  )
  [[ $found == "$4" ]] && return
  printf 'FAILED %s: expected "%s", found "%s"\n' "$1" "$4" "$found"
  failures=$((failures + 1))
}

whole=$place/whole no_cudnn=$place/no_cudnn no_nccl=$place/no_nccl
make_toolkit "$whole"
make_toolkit "$no_cudnn" && rm "$no_cudnn/include/cudnn_graph.h"
make_toolkit "$no_nccl" && rm "$no_nccl/include/nccl.h"

check "driver and toolkit" true "$whole" "--config=cuda; $whole"
check "no driver" false "$whole" "; $whole"
check "a toolkit without cuDNN" true "$no_cudnn" "; $no_cudnn"
check "a toolkit without NCCL" true "$no_nccl" "; $no_nccl"

fetched=$place/cache/gradus/cuda-13.0/packages/nvidia/cu13
if [[ ! -e /usr/local/cuda/include/cudnn_graph.h ]]; then
  check "driver alone" true "" "; "
  make_toolkit "$fetched"
  check "a toolkit that was fetched" true "" "--config=cuda; $fetched"
fi

echo 'build --config=cuda_emulated' >"$place/tree/user.bazelrc"
check "a choice in user.bazelrc" true "$whole" "; $whole"

((failures == 0))
