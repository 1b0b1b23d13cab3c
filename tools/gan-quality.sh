#!/usr/bin/env bash
# Trains the GAN of docs/guide/gans.md until it has learned its eight Gaussians. Then trains GANs on MNIST, measures them, and
# compares DCGAN with PyTorch's. Takes two hours on two cores.
#
#   tools/gan-quality.sh --data DIR [OPTIONS of tests/examples/gan_quality.py]
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

ensure_packages "$PACKAGES
python3-venv          a place for PyTorch"
# With GRADUS_LONG_TESTS, docs_test trains the GAN of the guide in full.
[[ ${1:-} == --help ]] || "$root/run" test //tests/docs:docs_test --test_env=GRADUS_LONG_TESTS=1
build //examples:gan
exec python3 "$root/tests/examples/gan_quality.py" --gan "$root/bazel-bin/examples/gan" \
  --python "$(pytorch_place)/bin/python" --out "$(cache_dir)/gan_quality" "$@"
