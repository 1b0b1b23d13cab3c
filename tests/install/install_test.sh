#!/bin/bash
# Installs Gradus, moves it, and builds and runs programs outside of it: by pkg-config all but one, that one by CMake, one again by
# Bazel. A program gets what it refers to and no more. Then a Bazel workspace that depends on the sources is analyzed; with --from-source it is built, which
# takes as long as Gradus.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
sources=$(readlink -f "$here/../..")
package=$PWD/bazel/package/prefix
work=$(mktemp -d "${TEST_TMPDIR:-/tmp}/install.XXXXXX")
export HOME=$work

if (($(nm "$package/lib/libgradus.a" 2>/dev/null | grep -cE '__(asan|tsan)_init') > 0)); then
  echo "the library is instrumented by a sanitizer; what is installed is not"
  exit 0
fi

prefix=$work/moved
"$PWD/bazel/package/install.sh" "$package" "$work/first"
mv "$work/first" "$prefix"

# Prints what a step does, and its output if it fails.
step() {
  local name=$1
  shift
  echo "== $name"
  "$@" >"$work/log" 2>&1 || { cat "$work/log"; echo "FAILED: $name"; exit 1; }
}

project() {
  mkdir -p "$work/$1"
  cp "$here/train.cc" "$here/resnet.cc" "$sources/examples/mnist.cc" "$work/$1"
  cd "$work/$1"
}

# The libraries that a file is loaded with.
loaded() {
  ldd "$1" | sed -E 's/^[[:space:]]*([^[:space:]]+).*/\1/; s|.*/||; s/\.so.*//' | sort -u
}

# A program that trains a network is at most 4 MB stripped, and needs oneDNN, OpenMP and the C++ library alone. What oneDNN
# itself is loaded with differs between distributions.
check_small() {
  strip -o "$work/stripped" "$1"
  local size others
  size=$(stat -c %s "$work/stripped")
  echo "$1: $size bytes"
  others=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*\]/\1/p' |
    grep -vxE 'libdnnl|libgomp|libstdc\+\+|libm|libgcc_s|libc|ld-linux-x86-64' || true)
  others+=$(loaded "$1" | grep -vxF -e libdnnl -e "$(loaded "$(ldd "$1" | awk '$1 ~ /^libdnnl/ { print $3 }')")" || true)
  ((size <= 4000000)) || { echo "FAILED: $1 has $size bytes"; exit 1; }
  [[ -z $others ]] || { echo "FAILED: $1 needs" $others; exit 1; }
}

# The example of README, unchanged.
check_mnist() {
  mkdir -p runs
  step "mnist" "$1/mnist" --train-samples 640 --test-samples 100 --epochs 1 --threads 1 --checkpoint-dir runs
  [[ $(grep -c 'Test set: Average loss' "$work/log") == 1 && -s runs/mnist.ckpt ]] ||
    { cat "$work/log"; echo "FAILED: mnist"; exit 1; }
}

project pkg-config
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
# shellcheck disable=SC2046  # one word per flag
step "g++ with pkg-config" g++ -O2 train.cc -o train $(pkg-config --cflags --libs gradus)
./train
check_small train
# shellcheck disable=SC2046
step "g++, gradus/core.h alone" g++ -O2 "$here/small.cc" -o small $(pkg-config --cflags --libs gradus)
./small
check_small small
# shellcheck disable=SC2046
step "g++, a network of models/" g++ -O0 resnet.cc -o resnet $(pkg-config --cflags --libs gradus)
step "resnet50" ./resnet
# shellcheck disable=SC2046
step "g++, all of Gradus" g++ -O0 "$here/job.cc" -o job $(pkg-config --cflags --libs gradus)
step "two ranks" ./job "$work"
[[ $(grep -c 'rank [01] done' "$work/log") == 2 && -s $work/net.safetensors && -s $work/picture.png ]] ||
  { cat "$work/log"; echo "FAILED: two ranks"; exit 1; }

project cmake
cp "$here/CMakeLists.txt" .
step "cmake" cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix"
step "cmake --build" cmake --build build
check_mnist build
sed -i 's/find_package(Gradus 0.1/find_package(Gradus 99.0/' CMakeLists.txt
if cmake -S . -B other -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1; then
  echo "FAILED: CMake took version 0.1 for 99.0"
  exit 1
fi

# Writes a workspace that finds Gradus at a place. The lines are those of docs/guide/install.md.
workspace() {
  cat >WORKSPACE <<END
local_repository(
    name = "gradus",
    path = "$1",
)

load("@gradus//bazel:dependencies.bzl", "gradus_dependencies")

gradus_dependencies()
END
  cat >.bazelrc <<'END'
build --compilation_mode=opt
build --cxxopt=-std=c++20 --host_cxxopt=-std=c++20
build --copt=-march=x86-64-v3
END
  cp "$here/outside.BUILD" BUILD.bazel
}

in_bazel() {
  bazel --batch --output_user_root="$work/bazel" --host_jvm_args=-Xmx400m "$@" --spawn_strategy=local
}

project bazel
workspace "$prefix/share/gradus/bazel"
step "bazel build" in_bazel build //:train
bazel-bin/train
check_small bazel-bin/train

project bazel_from_source
workspace "$sources"
if [[ ${1:-} == --from-source ]]; then
  step "bazel build from source" in_bazel build //:train
  bazel-bin/train
else
  step "bazel build --nobuild from source" in_bazel build --nobuild //:train
fi

step "gradus-run" "$prefix/bin/gradus-run" --nproc-per-node 2 "$work/pkg-config/train"
[[ $(grep -c '^.*loss ' "$work/log") == 2 ]] || { cat "$work/log"; exit 1; }

chmod -R u+w "$work"
rm -rf "$work"
