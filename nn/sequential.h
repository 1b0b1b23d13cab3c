// Sequential: a layer that applies a list of layers in order.
//
//   nn::Sequential net({nn::layer<nn::Linear>({.in = 784, .out = 128}),
//                       nn::layer<nn::ReLU>(),
//                       nn::layer<nn::Linear>({.in = 128, .out = 10})});
//
//   nn::Sequential blocks{this, "blocks"};                  // as a member, filled in the constructor
//   for (int i = 0; i < depth; ++i) blocks.add<Block>(width);  // Block(Module*, std::string name, int width)
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/nn/containers.h"

namespace gradus::nn {

// Constructs a layer as a child of `parent` with this name.
using LayerFactory = std::function<std::unique_ptr<Layer>(Module* parent, const std::string& name)>;

// Returns a factory of layers of type L with these options.
template <class L>
  requires requires { typename L::Options; }
LayerFactory layer(typename L::Options options = {}) {
  return [options](Module* parent, const std::string& name) {
    return std::make_unique<L>(parent, name, options);
  };
}
// Returns a factory of layers of type L, which has a constructor (parent, name, args...).
template <class L, class... Args>
  requires(!requires { typename L::Options; })
LayerFactory layer(Args... args) {
  internal::check_child<L, const Args&...>();
  return [args...](Module* parent, const std::string& name) {
    return std::make_unique<L>(parent, name, args...);
  };
}

class Sequential : public IndexedContainer<Layer, Layer> {
 public:
  Sequential() = default;
  explicit Sequential(const std::vector<LayerFactory>& layers);
  Sequential(Module* parent, std::string name, const std::vector<LayerFactory>& layers = {});

  using IndexedContainer::add;
  Layer& add(const LayerFactory& make);
  // Appends a layer under this name.
  // Errors: ValueError for a name that is empty, dotted or taken.
  Layer& add(const std::string& name, const LayerFactory& make);

  Layer& operator[](size_t i);                 // Errors: IndexError
  Layer& operator[](const std::string& name);  // Errors: IndexError

  Tensor forward(const Tensor& x) override;

 private:
  friend Tensor checkpoint_sequential(Sequential& net, int64_t segments, const Tensor& x);
  void add_all(const std::vector<LayerFactory>& layers);
  Tensor forward_temporary(Tensor&& x) override;
  // Applies layers [begin, end) to x.
  Tensor run(size_t begin, size_t end, const Tensor& x);
  // Calls layer i with x and increments i; or, if Layer::fuse_next fuses layers i and i + 1, calls both and
  // adds 2.
  template <class X> Tensor call_next(size_t& i, size_t end, X&& x);
};

// Computes net(x) with activation checkpointing, as torch.utils.checkpoint.checkpoint_sequential. Divides the
// layers into segments of equal length; the last one also has the remaining layers. All segments but the last
// save only their input, and the backward computes them again (autograd::checkpoint).
// Errors: ValueError unless segments is in [1, net.size()].
Tensor checkpoint_sequential(Sequential& net, int64_t segments, const Tensor& x);

}  // namespace gradus::nn
