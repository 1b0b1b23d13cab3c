#include "gradus/nn/sequential.h"

#include <optional>
#include <utility>

#include "gradus/autograd/functional.h"
#include "gradus/nn/layers/activations.h"
#include "gradus/nn/layers/batch_norm.h"

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

namespace {
// Returns next(layer(x)) where the layer computes both in one pass, else nothing.
std::optional<Tensor> rectified(Layer& layer, const Layer& next, const Tensor& x) {
  auto* const norm = dynamic_cast<BatchNorm*>(&layer);
  if (!norm || next.has_hooks()) return {};
  if (dynamic_cast<const ReLU*>(&next)) return norm->relu(x);
  if (const auto* leaky = dynamic_cast<const LeakyReLU*>(&next))
    return norm->leaky_relu(x, leaky->options().negative_slope);
  return {};
}
}  // namespace

template <class X> Tensor Sequential::apply(size_t& i, X&& x) {
  Layer& layer = *layers_[i++];
  if (i < layers_.size())
    if (std::optional<Tensor> y = rectified(layer, *layers_[i], x)) return ++i, std::move(*y);
  return layer(std::forward<X>(x));
}

Tensor Sequential::forward(const Tensor& x) {
  if (layers_.empty()) return x;
  size_t i = 0;
  Tensor h = apply(i, x);
  while (i < layers_.size()) h = apply(i, std::move(h));
  return h;
}

Tensor Sequential::forward_temporary(Tensor&& x) {
  Tensor h = std::move(x);
  for (size_t i = 0; i < layers_.size();) h = apply(i, std::move(h));
  return h;
}

Tensor checkpoint_sequential(Sequential& net, int64_t segments, const Tensor& x) {
  const auto count = static_cast<int64_t>(net.size());
  if (segments < 1 || segments > count)
    throw ValueError("checkpoint_sequential", "expected 1 to ", count, " segments for as many layers, given ",
                     segments);
  const auto run = [&net](int64_t begin, int64_t end, const Tensor& input) {
    Tensor h = net[begin](input);
    for (int64_t i = begin + 1; i < end; ++i) h = net[i](std::move(h));
    return h;
  };
  return net.call([&] {
    const int64_t length = count / segments;
    Tensor h = x;
    for (int64_t s = 0; s + 1 < segments; ++s)
      h = autograd::checkpoint([=](const Tensor& in) { return run(s * length, (s + 1) * length, in); }, h);
    return run((segments - 1) * length, count, h);
  });
}

}  // namespace gradus::nn
