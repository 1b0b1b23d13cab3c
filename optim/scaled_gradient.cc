#include "gradus/optim/scaled_gradient.h"

#include <map>

#include "gradus/tensor/base/error.h"

namespace gradus::optim::internal {
namespace {

// Note [Scaled gradients]
// The gradient's storage holds the mark, in the slot that autocast uses for casts of weights. So the mark is
// freed with the gradient, and a gradient that replaces it has no mark. The mark stores the storage's
// version, and thereby detects writes by other code. Marks have offsets because a storage may hold several
// gradients, those of a bucket.
struct ScaleMark final : Counted {
  std::map<int64_t, Factor> factors;  // by offset
  uint32_t version = 0;
};

ScaleMark* mark_on(const Tensor& grad) { return dynamic_cast<ScaleMark*>(grad.storage()->cast.get()); }

}  // namespace

std::string Factor::text() const { return number != 0 ? concat(" by ", number) : std::string(); }

const Factor* factor_of(const Tensor& grad) {
  const ScaleMark* mark = mark_on(grad);
  if (!mark) return nullptr;
  const auto it = mark->factors.find(grad.impl().offset);
  return it == mark->factors.end() ? nullptr : &it->second;
}

bool changed_since_marked(const Tensor& grad) {
  const ScaleMark* mark = mark_on(grad);
  return mark && mark->version != grad.storage()->version();
}

void mark_scaled(const Tensor& grad, const Factor& factor) {
  ScaleMark* mark = mark_on(grad);
  if (!mark) {
    auto fresh = make_ref<ScaleMark>();
    mark = fresh.get();
    grad.storage()->cast = std::move(fresh);
  }
  mark->factors[grad.impl().offset] = factor;
  mark->version = grad.storage()->version();
}

void remove_mark(const Tensor& grad) {
  ScaleMark* mark = mark_on(grad);
  if (!mark) return;
  mark->factors.erase(grad.impl().offset);
  mark->version = grad.storage()->version();
}

}  // namespace gradus::optim::internal
