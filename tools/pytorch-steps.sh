#!/usr/bin/env bash
# Times training steps in turn with those of the newest PyTorch, eager and compiled.
#
#   tools/pytorch-steps.sh [OPTIONS of benchmarks/pytorch_steps.py]
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

ensure_packages "$PACKAGES
python3-venv          a place for PyTorch
python3-dev           headers for what PyTorch compiles"
build //benchmarks:profile_step
exec python3 "$root/benchmarks/pytorch_steps.py" --profile-step "$root/bazel-bin/benchmarks/profile_step" \
  --python "$(pytorch_place)/bin/python" "$@"
