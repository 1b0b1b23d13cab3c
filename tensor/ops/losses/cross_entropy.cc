// cross_entropy (nll_loss with log_probs) of class numbers and its gradient: checks the arguments and calls
// the device's kernels, which see x as [outer, classes, inner]. A channels-last x is [N * positions, C, 1]
// without a copy, any other x is made row-major: [N, C, positions].
#include "gradus/tensor/ops/losses/cross_entropy.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// The dtype of all results but dx, and of the weight.
DType compute_dtype(const Tensor& x) { return size_of(x.dtype()) == 2 ? DType::kF32 : x.dtype(); }

struct KernelArguments {
  Tensor x, target, weight;
  CrossEntropySpec spec;
};

// Checks x [N, C, ...] or [C], target [N, ...] or [] (integers), and weight [C] or undefined, and converts
// their layouts.
KernelArguments check(const Tensor& x, const Tensor& target, const Tensor& weight, CrossEntropySpec spec) {
  const char* op = spec.log_probs ? "nll_loss" : "cross_entropy";
  if (x.dim() < 1) throw ShapeError(op, "expected scores [N,C,...] or [C], got x ", describe(x));
  check_floating(op, "x", x);
  check_integers(op, "class numbers", "target", target);
  Shape want = x.shape();
  want.erase(x.dim() == 1 ? 0 : 1);
  if (target.shape() != want)
    throw ShapeError(op, "expected a target ", want, " for x ", describe(x), ", got ", describe(target));
  spec.classes = x.size(x.dim() == 1 ? 0 : 1);
  if (spec.classes == 0) throw ShapeError(op, "there are no classes: x ", describe(x));
  if (weight.defined()) {
    if (weight.shape() != Shape{spec.classes} || weight.dtype() != compute_dtype(x))
      throw ShapeError(op, "expected a weight ", compute_dtype(x), "[", spec.classes, "], got ",
                       describe(weight));
    if (!are_compatible_devices(weight.device(), x.device()))
      throw DeviceError(op, "x is ", describe(x), " but weight is ", describe(weight));
  }
  if (!are_compatible_devices(target.device(), x.device()))
    throw DeviceError(op, "x is ", describe(x), " but target is ", describe(target));
  if (!(spec.smoothing >= 0 && spec.smoothing <= 1))
    throw ValueError(op, "expected label_smoothing in [0, 1], got ", spec.smoothing);

  KernelArguments c{x, contiguous(to(target, DType::kI64)), weight.defined() ? contiguous(weight) : weight,
                    spec};
  if (!x.is_channels_last()) {
    c.x = contiguous(x);
    for (int d = 2; d < x.dim(); ++d) c.spec.inner *= x.size(d);
  }
  return c;
}

}  // namespace

CrossEntropyResult cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                                 const CrossEntropySpec& spec) {
  const KernelArguments c = check(x, target, weight, spec);
  const TensorOptions like{compute_dtype(x), x.device()};
  CrossEntropyResult r;
  r.loss = empty(spec.reduction == Reduction::kNone ? target.shape() : Shape{}, like);
  if (!spec.log_probs) r.stats = empty({target.numel(), 2}, like);
  r.total = empty({}, like);
  cross_entropy_kernel(r.loss, r.stats, r.total, c.x, c.target, c.weight, c.spec);
  return r;
}

Tensor cross_entropy_grad(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& weight,
                          const CrossEntropyResult& forward, const CrossEntropySpec& spec) {
  const KernelArguments c = check(x, target, weight, spec);
  const Tensor dx = empty_like(c.x);
  cross_entropy_grad_kernel(dx, contiguous(dy), c.x, c.target, c.weight, forward.stats, forward.total,
                            c.spec);
  return dx;
}

}  // namespace gradus::raw
