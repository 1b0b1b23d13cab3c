#!/usr/bin/env bash
# Times training steps in bf16 in turn with the same in f32, as on lesser processors.
#
#   tools/bf16-steps.sh [OPTIONS of benchmarks/bf16_steps.py]
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

ensure_packages "$PACKAGES"
build //benchmarks:profile_step
exec python3 "$root/benchmarks/bf16_steps.py" --profile-step "$root/bazel-bin/benchmarks/profile_step" "$@"
