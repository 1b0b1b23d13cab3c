#include "gradus/autograd/ops/dropout.h"

#include "gradus/autograd/ops/reuse.h"
#include "gradus/autograd/record.h"
#include "gradus/tensor/ops/random.h"

namespace gradus {

Tensor masked_scale(Tensor x, const Tensor& mask, double scale) {
  Tensor y = raw::masked_scale(x, mask, scale, autograd::reusable_for(x, mask));
  if (Recorder r{"dropout", x})
    r.record(y, wrt(x, [mask = r.save(mask), scale](Tensor dy) {
               return masked_scale(std::move(dy), mask.get(), scale);
             }));
  return y;
}

Tensor dropout(Tensor&& x, double p, bool training) {
  if (!(p >= 0 && p <= 1)) throw ValueError("dropout", "expected a probability between 0 and 1, given ", p);
  if (!is_floating(x.dtype()))
    throw DTypeError("dropout", "expected a floating-point tensor, given ", describe(x));
  if (!training || p == 0) return std::move(x);
  const Tensor mask = raw::dropout_mask(x, 1 - p);
  return masked_scale(std::move(x), mask, p == 1 ? 0 : 1 / (1 - p));
}

Tensor dropout(const Tensor& x, double p, bool training) { return dropout(Tensor(x), p, training); }

}  // namespace gradus
