#include "gradus/nn/sequential.h"

namespace gradus::nn {

Layer& Sequential::operator[](size_t i) {
  if (i >= layers_.size()) throw IndexError("Sequential", "layer ", i, " of ", layers_.size());
  return *layers_[i];
}

Layer& Sequential::operator[](const std::string& name) {
  for (const auto& l : layers_)
    if (l->name() == name) return *l;
  throw IndexError("Sequential", "no layer is named '", name, "'");
}

Tensor Sequential::forward(const Tensor& x) {
  if (layers_.empty()) return x;
  Tensor h = (*layers_.front())(x);
  for (size_t i = 1; i < layers_.size(); ++i) h = (*layers_[i])(std::move(h));
  return h;
}

Tensor Sequential::forward_temporary(Tensor&& x) {
  Tensor h = std::move(x);
  for (const auto& l : layers_) h = (*l)(std::move(h));
  return h;
}

}  // namespace gradus::nn
