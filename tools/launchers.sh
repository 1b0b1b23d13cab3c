#!/usr/bin/env bash
# Starts ranks by other launchers: torchrun (PyTorch's newest), mpirun and plain processes. Ranks fail, two jobs run at
# once.
#
#   tools/launchers.sh [OPTIONS of tests/distributed/launch/launchers.py]
#
# TORCHRUN names another torchrun than that of the cache folder.
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

ensure_packages "$PACKAGES
python3-venv          a place for PyTorch
openmpi-bin           mpirun"
build //tests/distributed/launch:job_program //distributed/launch:gradus-run
[[ -n ${TORCHRUN:-} ]] || TORCHRUN=$(pytorch_place)/bin/torchrun
exec python3 "$root/tests/distributed/launch/launchers.py" --program "$root/bazel-bin/tests/distributed/launch/job_program" \
  --gradus-run "$root/bazel-bin/distributed/launch/gradus-run" \
  --torchrun "$TORCHRUN" --mpirun "$(command -v mpirun)" "$@"
