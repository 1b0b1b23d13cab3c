#!/usr/bin/env bash
# Fetches a CUDA toolkit into the cache folder, says how to build with it, and prints its folder.
#
#   tools/cuda-toolkit.sh
#
# The toolkit's parts are PyPI's packages, 1.2 GB; pip checks their checksums.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

[[ ${1:-} != @(-h|--help) ]] || usage
place=$(cache_dir)/cuda-13.0
toolkit=$place/packages/nvidia/cu13
if [[ ! -e $place/whole ]]; then
  [[ $(uname -m) == x86_64 ]] || die "cuda-toolkit: its packages are for x86-64"
  ensure_packages "python3-venv          installs PyPI's packages"
  say "fetching 1.2 GB to $place"
  rm -rf "$place"
  python3 -m venv "$place/venv" >&2
  "$place/venv/bin/pip" install --no-deps --require-hashes --target "$place/packages" \
    -r "$root/bazel/cuda_toolkit.txt" >&2 || die "cuda-toolkit: pip could not install the packages"
  # One folder, as NVIDIA's own installer makes it; libraries also without their version.
  for part in cudnn nccl; do
    ln -sf "$place/packages/nvidia/$part/include/"* "$toolkit/include/"
    ln -sf "$place/packages/nvidia/$part/lib/"*.so.* "$toolkit/lib/"
  done
  for file in "$toolkit"/lib/*.so.*; do
    ln -sf "${file##*/}" "${file%%.so.*}.so"
  done
  ln -sfn lib "$toolkit/lib64"
  "$toolkit/bin/nvcc" --version >&2 || die "cuda-toolkit: $toolkit/bin/nvcc does not run"
  touch "$place/whole"
fi
say "the toolkit is there: ./run builds programs with it where there is a GPU. For bazel: export CUDA_HOME=$toolkit"
printf '%s\n' "$toolkit"
