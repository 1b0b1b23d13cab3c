// Marks on gradients that a GradScaler has multiplied by its scale; steps and clipping refuse marked
// gradients.
#include "gradus/optim/scaled_gradient.h"

#include <map>

#include "gradus/tensor/base/error.h"

namespace gradus::optim::internal {
namespace {

// Note [Scaled gradients]
// The mark is stored in Storage::autograd_data of the gradient, which autocast uses for casts of weights. The mark is
// freed with the gradient, and a gradient that replaces it has no mark. The mark stores the storage's
// version, which every write increments, to detect writes by other code. Factors are stored per offset,
// because the gradients of a bucket (data parallelism) share one storage.
struct ScaleMark final : Counted {
  std::map<int64_t, Factor> factors;  // by the offset of the gradient in its storage
  uint32_t version = 0;
};

ScaleMark* mark_on(const Tensor& grad) {
  return dynamic_cast<ScaleMark*>(grad.storage()->autograd_data.get());
}

}  // namespace

// Empty if number is 0: then the factor is on a GPU, for which an error does not wait.
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
    auto new_mark = make_ref<ScaleMark>();
    mark = new_mark.get();
    grad.storage()->autograd_data = std::move(new_mark);
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
