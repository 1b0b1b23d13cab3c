#include "gradus/optim/scaled_gradient.h"

#include <map>

namespace gradus::optim::internal {
namespace {

// Note [Scaled gradients]
// The gradient's storage holds the mark, in the slot that autocast uses for casts of weights. So the mark is
// freed with the gradient, and a gradient that replaces it has no mark. The mark stores the storage's
// version, and thereby detects writes by other code. Marks have offsets because a storage may hold several
// gradients, those of a bucket.
struct ScaleMark final : Counted {
  std::map<int64_t, double> scales;  // by offset
  uint32_t version = 0;
};

ScaleMark* mark_on(const Tensor& grad) { return dynamic_cast<ScaleMark*>(grad.storage()->cast.get()); }

}  // namespace

double scale_of(const Tensor& grad) {
  const ScaleMark* mark = mark_on(grad);
  if (!mark) return 0;
  const auto it = mark->scales.find(grad.impl().offset);
  return it == mark->scales.end() ? 0 : it->second;
}

bool changed_since_marked(const Tensor& grad) {
  const ScaleMark* mark = mark_on(grad);
  return mark && mark->version != grad.storage()->version();
}

void mark_scaled(const Tensor& grad, double scale) {
  ScaleMark* mark = mark_on(grad);
  if (!mark && scale == 0) return;
  if (!mark) {
    auto fresh = make_ref<ScaleMark>();
    mark = fresh.get();
    grad.storage()->cast = std::move(fresh);
  }
  if (scale == 0)
    mark->scales.erase(grad.impl().offset);
  else
    mark->scales[grad.impl().offset] = scale;
  mark->version = grad.storage()->version();
}

}  // namespace gradus::optim::internal
