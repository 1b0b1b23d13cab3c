#include "gradus/nn/sequential.h"

#include "gradus/autograd/functional.h"

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
