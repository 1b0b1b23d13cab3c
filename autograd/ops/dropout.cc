// Dropout with differentiable records: y = scale x where a random bool mask is true (probability 1 - p, scale
// 1 / (1 - p)), else 0. Channel dropout draws one mask element per channel and broadcasts it. Alpha dropout
// adds the affine correction of SELU networks to the masked x. The mask is saved for backward. Masks come
// from the Context's generator and differ between replicas. For p = 1 the scale is 0, which avoids 1 / 0.
#include "gradus/autograd/ops/dropout.h"

#include <cmath>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

// Returns a random mask with x's first `channel_dims` dims, then sizes of 1: true with probability 1 - p.
Tensor channel_mask(const Tensor& x, double p, int channel_dims) {
  Shape shape = x.shape();
  for (int d = channel_dims; d < x.dim(); ++d) shape[d] = 1;
  return raw::dropout_mask(empty(shape, {x.dtype(), x.device()}), 1 - p);
}

// Records y = scale x where the mask is true, else 0. Backward: dx = scale dy where the mask is true, else 0.
void record_mask(const Tensor& y, const Tensor& x, const Tensor& mask, double scale) {
  if (Recorder r{"dropout", x})
    r.record(y, wrt(x, [mask = r.save(mask), scale](Tensor dy) {
               return masked_scale(std::move(dy), mask.get(), scale);
             }));
}

void check(const char* op, const Tensor& x, double p) {
  if (!(p >= 0 && p <= 1)) throw ValueError(op, "expected a probability between 0 and 1, got ", p);
  check_floating(op, "x", x);
}

// Dropout with one mask element per index of x's first `channel_dims` dims. Returns x itself unless training.
Tensor drop_channels(const char* op, const Tensor& x, double p, bool training, int channel_dims) {
  check(op, x, p);
  if (!training || p == 0) return x;
  return masked_scale(x, channel_mask(x, p, channel_dims), p == 1 ? 0 : 1 / (1 - p));
}

// Returns alpha dropout of x with a mask: a x + b where the mask is true, else b - alpha a. a and b preserve
// mean 0 and variance 1. For p = 1 the result is 0.
Tensor apply_alpha_mask(const Tensor& x, const Tensor& mask, double p) {
  constexpr double alpha = 1.7580993408473766;  // -SELU(-inf)
  if (p == 1) return masked_scale(x, mask, 0);
  const double a = 1 / std::sqrt((1 - p) * (1 + p * alpha * alpha)), b = alpha * a * p;
  // The second term is b where the mask is true, else b - alpha a.
  return masked_scale(x, mask, a) + (to(mask, x.dtype()) * (alpha * a) + (b - alpha * a));
}

}  // namespace

Tensor masked_scale(Tensor x, const Tensor& mask, double scale) {
  const OpCall call("masked_scale", {{"x", x}, {"mask", mask}});
  const Tensor y = raw::masked_scale(x, mask, scale, autograd::try_reuse(x, mask));
  record_mask(y, x, mask, scale);
  return y;
}

// Writes y into x's buffer if x is its only owner.
Tensor dropout(Tensor&& x, double p, bool training) {
  const OpCall call("dropout", {{"x", x}});
  check("dropout", x, p);
  if (!training || p == 0) return std::move(x);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  const auto [y, mask] = raw::dropout(x, 1 - p, scale, autograd::may_reuse(x) ? detach(x) : Tensor());
  record_mask(y, x, mask, scale);
  return y;
}

Tensor dropout1d(const Tensor& x, double p, bool training) {
  const OpCall call("dropout1d", {{"x", x}});
  const char* op = "dropout1d";
  if (x.dim() != 2 && x.dim() != 3) throw ShapeError(op, "expected [N,C,L] or [C,L], got ", describe(x));
  return drop_channels(op, x, p, training, x.dim() - 1);
}

Tensor dropout2d(const Tensor& x, double p, bool training) {
  const OpCall call("dropout2d", {{"x", x}});
  const char* op = "dropout2d";
  // As in PyTorch, 3 dims are [N,C,L], not an unbatched [C,H,W].
  if (x.dim() != 3 && x.dim() != 4) throw ShapeError(op, "expected [N,C,H,W] or [N,C,L], got ", describe(x));
  return drop_channels(op, x, p, training, 2);
}

Tensor dropout3d(const Tensor& x, double p, bool training) {
  const OpCall call("dropout3d", {{"x", x}});
  const char* op = "dropout3d";
  if (x.dim() != 4 && x.dim() != 5)
    throw ShapeError(op, "expected [N,C,D,H,W] or [C,D,H,W], got ", describe(x));
  return drop_channels(op, x, p, training, x.dim() - 3);
}

Tensor alpha_dropout(const Tensor& x, double p, bool training) {
  const OpCall call("alpha_dropout", {{"x", x}});
  check("alpha_dropout", x, p);
  if (!training || p == 0) return x;
  return apply_alpha_mask(x, raw::dropout_mask(x, 1 - p), p);
}

Tensor feature_alpha_dropout(const Tensor& x, double p, bool training) {
  const OpCall call("feature_alpha_dropout", {{"x", x}});
  const char* op = "feature_alpha_dropout";
  if (x.dim() < 2) throw ShapeError(op, "expected [N,C,...], got ", describe(x));
  check(op, x, p);
  if (!training || p == 0) return x;
  return apply_alpha_mask(x, channel_mask(x, p, 2), p);
}

Tensor dropout(const Tensor& x, double p, bool training) {
  const OpCall call("dropout", {{"x", x}});
  return dropout(Tensor(x), p, training);
}

}  // namespace gradus
