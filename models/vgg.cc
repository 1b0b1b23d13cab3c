// VGG: its layers by stage, and the named networks.
#include "gradus/models/vgg.h"

#include <algorithm>
#include <utility>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

VGGOptions with(VGGOptions o, std::vector<int64_t> stages, bool batch_norm) {
  o.stages = std::move(stages);
  o.batch_norm = batch_norm;
  return o;
}

}  // namespace

VGGOptions vgg11(VGGOptions o) { return with(std::move(o), {1, 1, 2, 2, 2}, false); }
VGGOptions vgg13(VGGOptions o) { return with(std::move(o), {2, 2, 2, 2, 2}, false); }
VGGOptions vgg16(VGGOptions o) { return with(std::move(o), {2, 2, 3, 3, 3}, false); }
VGGOptions vgg19(VGGOptions o) { return with(std::move(o), {2, 2, 4, 4, 4}, false); }
VGGOptions vgg11_bn(VGGOptions o) { return with(std::move(o), {1, 1, 2, 2, 2}, true); }
VGGOptions vgg13_bn(VGGOptions o) { return with(std::move(o), {2, 2, 2, 2, 2}, true); }
VGGOptions vgg16_bn(VGGOptions o) { return with(std::move(o), {2, 2, 3, 3, 3}, true); }
VGGOptions vgg19_bn(VGGOptions o) { return with(std::move(o), {2, 2, 4, 4, 4}, true); }

void VGG::build() {
  const Options& o = options();
  if (o.stages.empty() || std::ranges::min(o.stages) < 1)
    throw ValueError("VGG", "expected stages of at least one convolution");
  for (int64_t n : {o.width, o.hidden, o.in, o.classes})
    if (n < 1 || n > 1 << 24)
      throw ValueError("VGG", "expected width, hidden, in and classes from 1 to 2^24, got ", n);
  int64_t in = o.in;
  for (size_t s = 0; s < o.stages.size(); ++s) {
    const int64_t out = o.width << std::min<size_t>(s, 3);
    for (int64_t i = 0; i < o.stages[s]; ++i, in = out) {
      features.add<nn::Conv2d>({.in = in, .out = out, .kernel = 3, .padding = 1});
      if (o.batch_norm) features.add<nn::BatchNorm2d>({.features = out});
      features.add<nn::ReLU>();
    }
    features.add<nn::MaxPool2d>({.kernel = 2, .stride = 2});
  }
  for (const auto& [from, to] : {std::pair(in * 49, o.hidden), {o.hidden, o.hidden}}) {
    classifier.add<nn::Linear>({.in = from, .out = to});
    classifier.add<nn::ReLU>();
    classifier.add<nn::Dropout>({.p = o.dropout});
  }
  classifier.add<nn::Linear>({.in = o.hidden, .out = o.classes});
  for (const auto& [name, p] : named_parameters())
    if (p.dim() == 4)
      nn::init::kaiming_normal_(p, {.mode = nn::init::FanMode::kFanOut});
    else if (p.dim() == 2)
      nn::init::normal_(p, {.stddev = 0.01});
    else if (name.ends_with("bias"))
      nn::init::zeros_(p);
}

Tensor VGG::forward(const Tensor& x) { return classifier(flatten(adaptive_avg_pool2d(features(x), 7), 1)); }

Tensor VGG::hidden(const Tensor& x) {
  Tensor h = flatten(adaptive_avg_pool2d(features(x), 7), 1);
  for (size_t i = 0; i < 4; ++i) h = classifier[i](h);
  return h;
}

std::vector<Tensor> VGG::stage_maps(const Tensor& x) {
  std::vector<Tensor> maps;
  Tensor h = x;
  for (size_t i = 0; i < features.size(); ++i) {
    if (dynamic_cast<nn::MaxPool2d*>(&features[i])) maps.push_back(h);
    if (maps.size() < options().stages.size()) h = features[i](h);
  }
  return maps;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::VGGOptions, gradus::nn::Layer>;
