#!/usr/bin/env bash
# Builds kernels_on_device, which runs Gradus' kernels against host results on a real GPU: one binary that needs a
# driver and nothing else. Needs nvcc (CUDA_HOME, default /usr/local/cuda), no GPU.
#
#   tests/cuda/device/build.sh OUTPUT [ARCHITECTURE]     # default 90, an H100; checksums to OUTPUT.sources
#   scp OUTPUT machine: && ssh machine ./OUTPUT          # --only TEXT, --no-times, --seconds N
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
output=$(realpath "$1")
architecture=${2:-90}
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$root" "$work/gradus"
objects=()
for source in "$root"/tensor/cuda/kernels/*.cu.cc "$here"/*.cc; do
  object=$work/$(basename "$source").o
  echo "$(date +%T) $(basename "$source")"
  if [ "$(basename "$source")" = half.cc ]; then
    g++ -std=c++20 -O2 -march=x86-64-v3 -c "$source" -o "$object"
  else
    "$nvcc" -x cu -std=c++20 -O2 -arch="sm_$architecture" --compress-mode=size --expt-relaxed-constexpr \
      --extended-lambda -fmad=false \
      -U__FLT16_MANT_DIG__ -Xcompiler -march=x86-64-v3,-ffp-contract=off,-O2 --diag-suppress 20012,20014,20015,186 \
      -I"$work" -I"$here" -c "$source" -o "$object"
  fi
  objects+=("$object")
done
"$nvcc" -arch="sm_$architecture" -cudart static -Xcompiler -static-libstdc++,-static-libgcc "${objects[@]}" -o "$output"
strip "$output"
ls -l "$output"
(cd "$root" && sha256sum tensor/cuda/*.h tensor/cuda/kernels/*) >"$output.sources"
