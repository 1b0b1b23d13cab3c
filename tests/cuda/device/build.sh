#!/usr/bin/env bash
# Builds, without a GPU, what a machine with one has to run: a folder that needs a driver there, and cuBLAS. Needs nvcc
# (CUDA_HOME, default /usr/local/cuda).
#
#   tests/cuda/device/build.sh FOLDER [ARCHITECTURE]     # default 90, an H100
#   scp -r FOLDER machine: && ssh machine FOLDER/check
#
#   kernels_on_device     each kernel against host results, and their times: --only TEXT, --no-times, --seconds N
#   op_table              the op table on cuda:0 against the CPU
#   direct_op_table       its convolutions by our own kernels, without cuDNN
#   training              training steps on cuda:0 against the CPU: MNIST's network, ResNet-20, GPT, LSTM, ViT and GANs
#   features              what training uses beside kernels: tests/cuda/features
#   ranks                 ranks that share the GPU, or have one each, and NCCL's calls with one member
#   calls                 what steps ask of the device: no waits, no allocations
#   large_tensors         more than 2^31 elements, where there is memory for 24 GB
#   cases_on_gpu          the report's cases, for traffic.py, where there is Nsight Compute
#   mnist, gan            with two ranks on the GPU and with one
#   accuracy              the accuracy of mnist on the CPU and on cuda:0; MNIST in GRADUS_DATA/mnist, else its own digits
#   check                 all of them
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
for source in "$root"/tensor/cuda/runtime/host_calls.cc "$root"/tensor/cuda/kernels/*.cu.cc "$root"/tensor/cuda/kernels/*/*.cu.cc "$here"/*.cc; do
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

bazel() { (cd "$root" && command bazel build --disk_cache="${XDG_CACHE_HOME:-$HOME/.cache}/gradus/bazel" "$@"); }
programs=(op_table direct_op_table training features ranks calls large_tensors cases_on_gpu accuracy mnist gan)
bazel --config=optimized_gpu_code //tests/cuda/ops:op_table_on_gpu //tests/cuda/training:{training,calls}_on_gpu \
  //tests/cuda/ranks:ranks_on_gpu //tests/cuda/features:{direct_op_table_on_gpu,features_on_gpu,large_tensors_on_gpu,accuracy} \
  //tools/gpu_lab/report:cases_on_gpu
for program in ops/op_table training/{training,calls} ranks/ranks features/{direct_op_table,features,large_tensors}; do
  install "$root/bazel-bin/tests/cuda/${program}_on_gpu" "$folder/$(basename "$program")"
done
install "$root"/bazel-bin/{tests/cuda/features/accuracy,tools/gpu_lab/report/cases_on_gpu} "$folder"
cp "$root/tools/gpu_lab/report/traffic.py" "$folder"
bazel --config=cuda //examples:mnist //examples:gan
install "$root"/bazel-bin/examples/{mnist,gan} "$folder"
# All their libraries but the C library, which is the machine's own.
ldd "${programs[@]/#/$folder/}" | awk '$3 ~ /^\// { print $3 }' | sort -u |
  grep -vE '/(libc|libm|libpthread|librt|libdl|libresolv)\.so' | xargs cp -Lt "$folder/lib"
strip "$folder/kernels_on_device" "${programs[@]/#/$folder/}"

cat >"$folder/check" <<'END'
#!/bin/sh
# Runs the programs, and fails if one does.
cd "$(dirname "$0")" || exit
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
status=0
./kernels_on_device --seconds 900 || status=1  # the host checks large results slowly
export LD_LIBRARY_PATH="$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
for program in op_table direct_op_table training features ranks calls large_tensors; do
  echo "# $program"
  ./$program --gtest_brief=1 || status=1
done
echo "# ranks that share the GPU, and one rank: the losses are alike"
for ranks in 1 2; do
  ./mnist --epochs 1 --iterations 50 --nproc $ranks --device cuda:0 || status=1
  ./gan --epochs 1 --iterations 20 --nproc $ranks --device cuda:0 || status=1
done
echo "# accuracy"
./accuracy ./mnist --epochs 2 --workers 4 || status=1  # some minutes on the CPU
if ncu=$(command -v ncu); then
  echo "# traffic, where users may read counters"
  (unset LD_LIBRARY_PATH; python3 traffic.py ./cases_on_gpu "$ncu" >traffic.txt) || echo "no traffic"
fi
exit $status
END
chmod +x "$folder/check"
ls -l "$folder"
