// softmax, log_softmax, softmin and gumbel_softmax along one dim, with backward rules that use the result y.
// The backward ops are differentiable in dy and y. Under autocast, operands are cast to f32.
#include "gradus/autograd/ops/softmax.h"

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/random.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/softmax.h"

namespace gradus {

Tensor softmax(const Tensor& x, int64_t dim) {
  const OpCall call("softmax", {{"x", x}});
  if (autograd::Casting cast{"softmax"}) return softmax(cast(x), dim);
  Tensor y = raw::softmax(x, dim);
  if (Recorder r{"softmax", x})
    r.record(y, wrt(x, [y = r.save_output(y), dim](const Tensor& dy) {
               return softmax_backward(dy, y.get(), dim);
             }));
  return y;
}

Tensor log_softmax(const Tensor& x, int64_t dim) {
  const OpCall call("log_softmax", {{"x", x}});
  if (autograd::Casting cast{"log_softmax"}) return log_softmax(cast(x), dim);
  Tensor y = raw::log_softmax(x, dim);
  if (Recorder r{"log_softmax", x})
    r.record(y, wrt(x, [y = r.save_output(y), dim](const Tensor& dy) {
               return log_softmax_backward(dy, y.get(), dim);
             }));
  return y;
}

Tensor softmin(const Tensor& x, int64_t dim) {
  const OpCall call("softmin", {{"x", x}});
  if (autograd::Casting cast{"softmin"}) return softmin(cast(x), dim);
  raw::check_reducible_float(x, {dim}, "softmin");
  return softmax(-x, dim);
}

Tensor gumbel_softmax(const Tensor& x, const GumbelSoftmaxOptions& options) {
  const OpCall call("gumbel_softmax", {{"x", x}});
  if (autograd::Casting cast{"gumbel_softmax"}) return gumbel_softmax(cast(x), options);
  raw::check_reducible_float(x, {options.dim}, "gumbel_softmax");
  if (!(options.tau > 0)) throw ValueError("gumbel_softmax", "expected positive tau, got ", options.tau);
  // Gumbel noise -log(-log(u)) with u = 1 - rand in (0, 1]; the clamp keeps the outer logarithm finite at
  // u = 1. Computed in f32 at least, because u would often round to 1 in 16 bits.
  const DType wide = promote(x.dtype(), DType::kF32);
  const Tensor u = 1 - rand_like(to(detach(x), wide));
  const Tensor noise = -log(clamp(-log(u), wide == DType::kF64 ? 1e-300 : 1e-37));
  const Tensor y = to(softmax((x + noise) / options.tau, options.dim), x.dtype());
  if (!options.hard || y.numel() == 0) return y;
  // Straight-through: the values of the one-hot argmax, the gradient of y.
  const Tensor soft = detach(y);
  const Tensor at = raw::max(soft, options.dim, true).second;
  const Tensor hard = scatter(zeros_like(soft), options.dim, at, 1);
  return hard + (y - soft);
}

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim) {
  const OpCall call("softmax_backward", {{"dy", dy}, {"y", y}});
  Tensor dx = raw::softmax_backward(dy, y, dim);
  if (Recorder r{"softmax_backward", dy, y})
    r.record(dx, wrt(dy, [y = r.save(y), dim](const Tensor& g) { return softmax_backward(g, y.get(), dim); }),
             wrt(y, [dy = r.save(dy), y = r.save(y), dim](const Tensor& g) {
               const Tensor d = dy.get();
               return g * (d - sum(d * y.get(), dim, true)) - d * sum(g * y.get(), dim, true);
             }));
  return dx;
}

Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim) {
  const OpCall call("log_softmax_backward", {{"dy", dy}, {"y", y}});
  Tensor dx = raw::log_softmax_backward(dy, y, dim);
  if (Recorder r{"log_softmax_backward", dy, y})
    r.record(dx,
             wrt(dy, [y = r.save(y), dim](const Tensor& g) { return g - sum(g * exp(y.get()), dim, true); }),
             wrt(y, [dy = r.save(dy), y = r.save(y), dim](const Tensor& g) {
               return -(g * exp(y.get()) * sum(dy.get(), dim, true));
             }));
  return dx;
}

}  // namespace gradus
