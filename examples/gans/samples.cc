// Latents are drawn from the Context's generator, whose state is restored, so that sampling does not change a
// training. Images are generated in batches of 100.
#include "gradus/examples/gans/samples.h"

#include <iostream>

namespace gradus::examples {
namespace {

constexpr int64_t kBatch = 100;

// Returns f of batches of the latents, in evaluation mode, on the device of the network.
template <class F>
Tensor in_batches(Networks& net, const Latents& from, const nn::StateDict& weights, const F& f) {
  const auto off = no_record();
  const nn::ModeScope mode(net, false);
  std::optional<nn::ParameterScope> scope;
  if (!weights.empty()) scope.emplace(*net.gen, weights);
  const Device device = net.parameters().front().device();
  const int64_t count = (from.ws.defined() ? from.ws : from.z).size(0);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < count; i += kBatch) {
    Latents part = from;
    Latents::each(part, [&](Tensor& x) {
      if (x.defined()) x = to(slice(x, 0, i, std::min(i + kBatch, count)), device);
    });
    parts.push_back(to(f(part), kCPU));
  }
  return cat(parts, 0);
}

}  // namespace

Latents latents(int64_t count, uint64_t seed, const NetworkOptions& o) {
  RandomGenerator& generator = *Context::current().generator;
  const RandomGenerator before = generator;
  generator.manual_seed(seed);
  Latents all = {.z = randn({count, o.latent})};
  generator = before;
  if (o.classes > 0) all.labels = remainder(arange(count), o.classes);
  return all;
}

Tensor generate(Networks& net, const Latents& from, const nn::StateDict& weights) {
  return in_batches(net, from, weights, [&](const Latents& part) { return net.generate(part); });
}
Tensor styles(StyleNetworks& net, const Latents& from, const nn::StateDict& weights) {
  return in_batches(net, from, weights, [&](const Latents& part) { return net.styles(part); });
}

Tensor to_bytes(const Tensor& images) { return to(round(clamp((images + 1) * 127.5, 0, 255)), DType::kU8); }

Grids::Grids(std::filesystem::path folder, const NetworkOptions& o, uint64_t seed)
    : folder_(std::move(folder)), model_(o.model), latents_(latents(64, seed, o)) {
  // A column of the grid has one class; 8 classes at most.
  if (o.classes > 0) latents_.labels = remainder(arange(64), std::min(o.classes, int64_t{8}));
}

Tensor Grids::write(Networks& net, const nn::StateDict& averaged, int64_t images) const {
  const std::string name = training::format_text("%s_%09lld", model_, images);
  const Tensor grid = generate(net, latents_, averaged);
  write(generate(net, latents_), name);
  write(grid, name + "_ema");
  return to_bytes(grid);
}

void Grids::write(const Tensor& grid, const std::string& name) const {
  try {
    std::filesystem::create_directories(folder_);
    io::save_image(folder_ / (name + ".png"), to_bytes(grid), {.nrow = 8});
  } catch (const std::exception& e) {
    std::cerr << "gan: no grid was written: " << e.what() << std::endl;
  }
}

}  // namespace gradus::examples
