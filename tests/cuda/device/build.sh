#!/usr/bin/env bash
# Builds, without a GPU, what a machine with one has to run: a folder that needs a driver there, and cuBLAS. Needs nvcc
# (CUDA_HOME, default /usr/local/cuda).
#
#   tests/cuda/device/build.sh FOLDER [ARCHITECTURE]     # default 90, an H100
#   scp -r FOLDER machine: && ssh machine FOLDER/check
#
#   kernels_on_device     each kernel against host results, and their times: --only TEXT, --no-times, --seconds N
#   op_table              the op table on cuda:0 against the CPU
#   training              training steps of MNIST's network, ResNet-20 and DCGAN on cuda:0 against the CPU
#   check                 all of them
#   sources               checksums of what was compiled, for tests/cuda/recorded
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
mkdir -p "$1/lib"
folder=$(realpath "$1")
architecture=${2:-90}
nvcc=${CUDA_HOME:-/usr/local/cuda}/bin/nvcc
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$root" "$work/gradus"

objects=()
for source in "$root"/tensor/cuda/host_calls.cc "$root"/tensor/cuda/kernels/*.cu.cc "$here"/*.cc; do
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
"$nvcc" -arch="sm_$architecture" -cudart static -Xcompiler -static-libstdc++,-static-libgcc "${objects[@]}" \
  -o "$folder/kernels_on_device"
(cd "$root" && sha256sum tensor/cuda/*.{h,cc} tensor/cuda/{kernels,ops}/* tensor/ops/formulas/* optim/{cuda,rules}/*) >"$folder/sources"

(cd "$root" && bazel build --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/gradus/bazel" \
  //tests/cuda/ops:op_table_on_gpu //tests/cuda/training:training_on_gpu)
install "$root/bazel-bin/tests/cuda/ops/op_table_on_gpu" "$folder/op_table"
install "$root/bazel-bin/tests/cuda/training/training_on_gpu" "$folder/training"
# All their libraries but the C library, which is the machine's own.
ldd "$folder/op_table" "$folder/training" | awk '$3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libpthread|librt|libdl|libresolv)\.so' | xargs cp -Lt "$folder/lib"
strip "$folder/kernels_on_device" "$folder/op_table" "$folder/training"

cat >"$folder/check" <<'END'
#!/bin/sh
# Runs the programs, and fails if one does.
cd "$(dirname "$0")" || exit
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
status=0
./kernels_on_device --seconds 900 || status=1  # the host checks large results slowly
for program in op_table training; do
  LD_LIBRARY_PATH=lib ./$program --gtest_brief=1 || status=1
done
exit $status
END
chmod +x "$folder/check"
ls -l "$folder"
