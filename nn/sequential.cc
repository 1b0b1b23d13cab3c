// Sequential applies its layers in order; a layer may reuse the buffer of the preceding result. Adjacent
// layers are fused if Layer::fuse_next can, in checkpoint_sequential only within a segment.
// Also the containers of containers.h.
#include "gradus/nn/sequential.h"

#include <optional>
#include <utility>

#include "gradus/autograd/functional.h"

namespace gradus::nn {

template class Container<Layer>;
template class Container<Layer, Layer>;

ParameterList::ParameterList() = default;
ParameterList::ParameterList(Module* parent, std::string name) : Module(parent, std::move(name)) {}
ParameterList::~ParameterList() = default;

ParameterDict::ParameterDict() = default;
ParameterDict::ParameterDict(Module* parent, std::string name) : Module(parent, std::move(name)) {}
ParameterDict::~ParameterDict() = default;

Parameter& ParameterDict::add(const std::string& key, Tensor value) {
  items_.push_back(std::make_unique<Parameter>(this, key, std::move(value)));
  keys_.push_back(key);
  return *items_.back();
}
Parameter* ParameterDict::get(const std::string& key) const {
  for (size_t i = 0; i < keys_.size(); ++i)
    if (keys_[i] == key) return items_[i].get();
  return nullptr;
}
Parameter& ParameterDict::operator[](const std::string& key) const {
  if (Parameter* p = get(key)) return *p;
  throw IndexError("ParameterDict", "no parameter is named '", key, "'");
}

Parameter& ParameterList::add(Tensor value) {
  items_.push_back(std::make_unique<Parameter>(this, std::to_string(size()), std::move(value)));
  return *items_.back();
}
Parameter& ParameterList::operator[](size_t i) const {
  if (i >= size()) throw IndexError("ParameterList", "parameter ", i, " of ", size());
  return *items_[i];
}

Sequential::Sequential(const std::vector<LayerFactory>& layers) { add_all(layers); }
Sequential::Sequential(Module* parent, std::string name, const std::vector<LayerFactory>& layers)
    : IndexedContainer(parent, std::move(name)) {
  add_all(layers);
}

Layer& Sequential::add(const LayerFactory& make) { return append(make(this, std::to_string(size()))); }
Layer& Sequential::add(const std::string& name, const LayerFactory& make) { return append(make(this, name)); }
void Sequential::add_all(const std::vector<LayerFactory>& layers) {
  for (const LayerFactory& make : layers) add(make);
}

Layer& Sequential::operator[](size_t i) {
  if (i >= modules_.size()) throw IndexError("Sequential", "layer ", i, " of ", modules_.size());
  return *modules_[i];
}

Layer& Sequential::operator[](const std::string& name) {
  for (const auto& l : modules_)
    if (l->name() == name) return *l;
  throw IndexError("Sequential", "no layer is named '", name, "'");
}

template <class X> Tensor Sequential::call_next(size_t& i, size_t end, X&& x) {
  Layer& layer = *modules_[i++];
  if (i < end)
    if (std::optional<Tensor> y = layer.fuse_next(*modules_[i], x)) return ++i, *std::move(y);
  return layer(std::forward<X>(x));
}

Tensor Sequential::run(size_t begin, size_t end, const Tensor& x) {
  if (begin == end) return x;
  Tensor h = call_next(begin, end, x);
  while (begin < end) h = call_next(begin, end, std::move(h));
  return h;
}

Tensor Sequential::forward(const Tensor& x) { return run(0, size(), x); }

Tensor Sequential::forward_temporary(Tensor&& x) {
  Tensor h = std::move(x);
  for (size_t i = 0; i < size();) h = call_next(i, size(), std::move(h));
  return h;
}

Tensor checkpoint_sequential(Sequential& net, int64_t segments, const Tensor& x) {
  const auto count = static_cast<int64_t>(net.size());
  if (segments < 1 || segments > count)
    throw ValueError("checkpoint_sequential", "expected 1 to ", count, " segments for as many layers, got ",
                     segments);
  return net.call([&] {
    const int64_t length = count / segments;
    Tensor h = x;
    for (int64_t s = 0; s + 1 < segments; ++s)
      h = autograd::checkpoint(
          [=, &net](const Tensor& in) { return net.run(s * length, (s + 1) * length, in); }, h);
    return net.run((segments - 1) * length, count, h);
  });
}

}  // namespace gradus::nn
