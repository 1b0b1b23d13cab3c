#!/usr/bin/env bash
# Builds tests or a program for ARM by a cross compiler, and runs them in an emulator (docs/internals/platforms.md).
#
#   tools/on-arm.sh [--processor CPU] [TARGETS] [bazel's flags]
#   tools/on-arm.sh [--processor CPU] EXAMPLE [args]
#
# CPU is a name that qemu knows. Debian's libraries for ARM are unpacked in the cache folder, once.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# What is tested if no target is named.
readonly ARM_TESTS='
//tests/tensor:processor_test //tests/ops/... //tests/nn/... //tests/golden:mnist_step_test
//tests/distributed/health:futex_test //tests/distributed/base:reduce_op_test
//tests/distributed/transport:arena_test //tests/distributed/transport:ring_transport_test
//tests/distributed/data_parallel:data_parallel_test //tests/distributed/data_parallel:reducer_test
'

processor=neoverse-n1
case ${1:-} in
  -h | --help) usage ;;
  --processor=*) processor=${1#*=} && shift ;;
  --processor) processor=${2:?on-arm: --processor needs a name that qemu knows} && shift 2 ;;
esac
ensure_packages "$PACKAGES
g++-aarch64-linux-gnu  compiles for ARM
qemu-user             runs programs for ARM"
place=$(cache_dir)/aarch64
if [[ ! -e $place/whole ]]; then
  say "unpacking libraries for ARM in $place"
  mapfile -t packages < <(awk '$1 ~ /-dev$/ { print $1 }' <<<"$PACKAGES")
  "$root/bazel/aarch64/sysroot.sh" "$place" libc6-dev libstdc++-12-dev libgomp1 "${packages[@]}" >&2 ||
    die "on-arm: no libraries"
fi
flags=(--config=aarch64 --repo_env="GRADUS_SYSROOT=$place/sysroot" --experimental_convenience_symlinks=ignore)
emulator=(qemu-aarch64 -L "$place/sysroot" -cpu "$processor")
# Emulated threads that spin while they wait take very long.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} OMP_WAIT_POLICY=passive
if has_program examples "${1:-}"; then
  build "${flags[@]}" "//examples:$1"
  exec "${emulator[@]}" "$(in_bazel info "${flags[@]}" bazel-bin 2>/dev/null)/examples/$1" "${@:2}"
fi
# shellcheck disable=SC2086  # words
[[ " $*" == *' //'* ]] || set -- "$@" $ARM_TESTS
exec "$root/run" test "${flags[@]}" --run_under="${emulator[*]}" --test_env=OMP_NUM_THREADS --test_env=OMP_WAIT_POLICY "$@"
