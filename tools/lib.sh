# Functions of ./run and of the scripts in this folder: installing packages, building, running what was built.
# To be sourced by bash.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly root

# What a build needs, and why.
readonly PACKAGES='
bazel-bootstrap       build tool; brings g++, zlib and python3
bazel-rules-java      part of the build tool
bazel-rules-proto     part of the build tool
libdnnl-dev           oneDNN: matrix products, convolution, normalization
libhwy-dev            Highway: vector kernels, written once for all processors
libeigen3-dev         Eigen: kernels in f64, softmax, losses
libcli11-dev          CLI11: command lines of the programs
nlohmann-json3-dev    JSON: summaries, headers of weight files
zlib1g-dev            zlib: compressed data sets
libjpeg-dev           libjpeg-turbo: JPEG images
libpng-dev            libpng: PNG images
libwebp-dev           libwebp: WebP images
liblmdb-dev           LMDB: the format of LSUN
libxxhash-dev         xxHash: checksums of tensors
libcurl4-openssl-dev  curl: downloads
libssl-dev            OpenSSL: checksums of downloads
libgloo-dev           gloo: the other side of benchmarks of collectives
ca-certificates       certificates for downloads
libgtest-dev          GoogleTest: tests
libgmock-dev          GoogleMock: tests
iproute2              tests of several hosts: network namespaces
cmake                 tests of the installed library
pkg-config            the same
'

say() { printf '%s\n' "gradus: $*" >&2; }

die() {
  say "$@"
  exit 1
}

# Prints the comment at the top of a script, and exits.
usage() {
  sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"
  exit 0
}

# ---- packages ----

# Prints those of the named packages that are not installed.
missing_packages() {
  local installed package
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^.i. *//p') || true
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Runs a command as root; the proxy settings pass through sudo.
as_root() {
  if ((EUID == 0)); then
    "$@"
    return
  fi
  local variable settings=()
  for variable in http_proxy https_proxy HTTP_PROXY HTTPS_PROXY no_proxy; do
    [[ -z ${!variable:-} ]] || settings+=("$variable=${!variable}")
  done
  sudo env "${settings[@]}" "$@"
}

# Installs the packages described by lines "name  why" that are missing.
ensure_packages() {
  local table=$1 names missing package
  mapfile -t names < <(awk 'NF { print $1 }' <<<"$table")
  if ! command -v dpkg-query >/dev/null; then
    command -v bazel >/dev/null || die "this is no Debian system: install bazel 4.2.3 and the libraries of: ${names[*]}"
    return
  fi
  mapfile -t missing < <(missing_packages "${names[@]}")
  ((${#missing[@]})) || return 0

  say "installing packages that are missing:"
  for package in "${missing[@]}"; do
    awk -v package="$package" '$1 == package' <<<"$table" >&2
  done
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    die "this needs root, and there is no sudo. As root, run: apt-get install --no-install-recommends ${missing[*]}"
  fi
  # Slim images leave out the manual's folders, in which Java's packages make links.
  [[ -d /usr/share/man/man1 ]] || as_root mkdir -p /usr/share/man/man1
  as_root apt-get -q update >&2 || say "apt-get update failed; trying with the lists that are there"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "${missing[@]}" >&2 ||
    die "apt-get could not install: ${missing[*]}"
}

# ---- build ----

cache_dir() {
  : "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
  export HOME
  printf '%s\n' "${XDG_CACHE_HOME:-$HOME/.cache}/gradus"
}

# Runs a bazel command at the root, whatever the current folder.
in_bazel() {
  local command=$1
  shift
  # A link of an earlier place of this folder would be searched for targets; .bazelignore names the others.
  find "$root" -maxdepth 1 -type l -name 'bazel-*' \
    ! -name bazel-bin ! -name bazel-out ! -name bazel-testlogs -delete 2>/dev/null || true
  (cd "$root" && bazel "$command" --disk_cache="$(cache_dir)/bazel" "$@")
}

# Builds a target. Progress is shown on a terminal, in a log only errors.
build() {
  local quiet=(--ui_event_filters=-info --show_result=0 --noshow_loading_progress)
  [[ -t 2 ]] || quiet+=(--noshow_progress)
  in_bazel build "${quiet[@]}" "$@" >&2
}

has_gpu_driver() { [[ -e /dev/nvidiactl || -e /dev/dxg ]]; }

# Prints the folder of a whole CUDA toolkit, if there is one: CUDA_HOME, else NVIDIA's or that of tools/cuda-toolkit.sh.
cuda_home() {
  local homes=("${CUDA_HOME:-}") home part
  [[ -n ${CUDA_HOME:-} ]] || homes=(/usr/local/cuda "$(cache_dir)/cuda-13.0/packages/nvidia/cu13")
  for home in "${homes[@]}"; do
    for part in bin/nvcc include/cublasLt.h include/cudnn_graph.h include/nccl.h lib64/libcudart_static.a ''; do
      [[ -z $part || -e $home/$part ]] || break
    done
    [[ -n $part ]] || { printf '%s\n' "$home" && return; }
  done
}

# Sets device_flags and CUDA_HOME so that programs use GPUs, if there are a driver and a toolkit. What user.bazelrc says
# of CUDA goes before.
find_cuda() {
  device_flags=()
  local home
  home=$(cuda_home)
  if has_gpu_driver && [[ -n $home ]] && ! grep -qs cuda "$root/user.bazelrc"; then
    export CUDA_HOME=$home
    device_flags=(--config=cuda)
  fi
}

# Prints the names of the programs in a folder's BUILD file.
programs() {
  [[ -f $root/$1/BUILD.bazel ]] || return 0
  awk '
    /^(gradus|cc)_binary\(/ { inside = 1 }
    inside && match($0, /name = "[^"]*"/) { print substr($0, RSTART + 8, RLENGTH - 9); inside = 0 }
    /^\)/ { inside = 0 }
  ' "$root/$1/BUILD.bazel"
}

has_program() { programs "$1" | grep -qxF -- "$2"; }

# Builds //folder:name and becomes it, in the user's folder.
run_program() {
  local folder=$1 name=$2
  shift 2
  ensure_packages "$PACKAGES"
  find_cuda
  build "${device_flags[@]}" "//$folder:$name"
  exec "$root/bazel-bin/$folder/$name" "$@"
}

# Prints the place of a Python with PyTorch, as new as PyPI has it, in the cache folder.
pytorch_place() {
  local place
  place=$(cache_dir)/torchrun
  [[ -d $place ]] || python3 -m venv "$place" >&2
  "$place/bin/pip" install --quiet --upgrade torch torchvision numpy >&2 || say "PyPI is out of reach: PyTorch as it is there"
  printf '%s\n' "$place"
}

# Takes --cpu LEVEL and --guard WHERE out of the arguments, which then are in `arguments`, and sets what Gradus reads.
take_levels() {
  arguments=()
  while (($#)); do
    case $1 in
      --cpu=* | --guard=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
      --cpu | --guard)
        (($# > 1)) || die "$1 needs a value"
        if [[ $1 == --cpu ]]; then export GRADUS_CPU=$2; else export GRADUS_GUARD=$2; fi
        shift 2
        ;;
      *)
        arguments+=("$1")
        shift
        ;;
    esac
  done
}
