// The models of `./run pipeline`, with their cuts into stages.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/gradus.h"
#include "gradus/models/resnet.h"

namespace gradus::bench {

struct PipelineModel {
  std::string name;
  int64_t rows = 1;  // rows per micro-batch
  std::function<std::unique_ptr<nn::Layer>()> make;
  std::function<Tensor(int64_t rows)> input, target;
  std::function<Tensor(const Tensor& y, const Tensor& target)> loss;
  // By number of stages: the last module of each stage but the last.
  std::map<int, std::vector<std::string>> cuts;
};

// A sequence of kCount equal blocks.
template <class Block> struct Blocks : nn::Layer {
  static constexpr int kCount = 8;
  template <class... Args> explicit Blocks(const Args&... args) {
    for (int i = 0; i < kCount; ++i) blocks.add(args...);
  }
  nn::ModuleList<Block> blocks{this, "blocks"};
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (auto& block : blocks) y = block(y);
    return y;
  }

  static std::map<int, std::vector<std::string>> cuts() {
    std::map<int, std::vector<std::string>> all{{1, {}}};
    for (const int stages : {2, 4, 8})
      for (int i = 1; i < stages; ++i) all[stages].push_back(concat("blocks.", i * kCount / stages - 1));
    return all;
  }
};

struct MLPBlock : nn::Layer {
  using Layer::Layer;
  nn::Linear fc{this, "fc", {.in = 1024, .out = 1024}};
  Tensor forward(const Tensor& x) override { return relu(fc(x)); }
};

// A decoder block with the width of a small GPT.
// Shapes: x [N,64,256] -> the same.
struct GPTBlock : nn::Layer {
  using Layer::Layer;
  nn::TransformerEncoderLayer layer{this,
                                    "layer",
                                    {.d_model = 256,
                                     .nhead = 4,
                                     .dim_feedforward = 1024,
                                     .activation = nn::TransformerActivation::kGELU,
                                     .batch_first = true,
                                     .norm_first = true}};
  Tensor forward(const Tensor& x) override { return layer(x, {.causal = true}); }
};

inline const std::vector<std::string>& pipeline_model_names() {
  static const std::vector<std::string> names = {"gpt", "resnet50", "mlp"};
  return names;
}

inline PipelineModel pipeline_model(const std::string& name) {
  const auto mse = [](const Tensor& y, const Tensor& t) { return nn::mse_loss(y, t); };
  if (name == "gpt") {
    const auto x = [](int64_t rows) { return randn({rows, 64, 256}); };
    return {
        name, 4, [] { return std::make_unique<Blocks<GPTBlock>>(); }, x, x, mse, Blocks<GPTBlock>::cuts()};
  }
  if (name == "mlp") {
    const auto x = [](int64_t rows) { return randn({rows, 1024}); };
    return {
        name, 128, [] { return std::make_unique<Blocks<MLPBlock>>(); }, x, x, mse, Blocks<MLPBlock>::cuts()};
  }
  return {name,
          8,
          [] { return std::make_unique<models::ResNet>(models::resnet50()); },
          [](int64_t rows) {
            return randn({rows, 3, 64, 64});
          },
          [](int64_t rows) { return randint(0, 1000, {rows}); },
          [](const Tensor& y, const Tensor& t) { return nn::cross_entropy(y, t); },
          {{1, {}}, {2, {"layer3.0"}}, {4, {"layer2.0", "layer3.0", "layer4.0"}}}};
}

}  // namespace gradus::bench
