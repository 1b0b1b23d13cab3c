// Workloads: training steps of residual networks, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// resnet_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

struct Options {
  std::vector<int64_t> stages;
  bool bottleneck;
  bool cifar;
  int64_t classes;
};

struct BlockImpl : nn::Module {
  BlockImpl(const Options& o, int64_t in, int64_t width, int64_t stride) : stride(stride), cifar(o.cifar) {
    const int64_t out = o.bottleneck ? 4 * width : width;
    more = out - in;
    if (o.bottleneck)
      convs = {conv(in, width, 1), conv(width, width, 3, stride), conv(width, out, 1)};
    else
      convs = {conv(in, width, 3, stride), conv(width, width, 3)};
    for (size_t i = 0; i < convs.size(); ++i) {
      bns.emplace_back(i + 1 == convs.size() ? out : width);
      register_module("conv" + std::to_string(i + 1), convs[i]);
      register_module("bn" + std::to_string(i + 1), bns[i]);
    }
    if ((stride > 1 || more) && !cifar)
      downsample =
          register_module("downsample", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
  torch::Tensor forward(torch::Tensor x) {
    auto h = x;
    for (size_t i = 0; i < convs.size(); ++i) {
      h = bns[i](convs[i](h));
      if (i + 1 < convs.size()) h = h.relu_();
    }
    if (downsample)
      x = downsample->forward(x);
    else if (more)
      x = nn::functional::pad(x.slice(2, 0, c10::nullopt, stride).slice(3, 0, c10::nullopt, stride),
                              nn::functional::PadFuncOptions({0, 0, 0, 0, more / 2, more - more / 2}));
    h += x;
    return h.relu_();
  }
  int64_t stride, more;
  bool cifar;
  std::vector<nn::Conv2d> convs;
  std::vector<nn::BatchNorm2d> bns;
  nn::Sequential downsample{nullptr};
};
TORCH_MODULE(Block);

struct ResNetImpl : nn::Module {
  explicit ResNetImpl(const Options& o)
      : cifar(o.cifar), conv1(cifar ? conv(3, 16, 3) : conv(3, 64, 7, 2)), bn1(cifar ? 16 : 64) {
    int64_t width = cifar ? 16 : 64, in = width;
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    for (size_t s = 0; s < o.stages.size(); ++s, width *= 2)
      for (int64_t b = 0; b < o.stages[s]; ++b) {
        layers->push_back(Block(o, in, width, s > 0 && b == 0 ? 2 : 1));
        in = o.bottleneck ? 4 * width : width;
      }
    register_module("layers", layers);
    fc = register_module("fc", nn::Linear(in, o.classes));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = bn1(conv1(x)).relu_();
    if (!cifar) x = torch::max_pool2d(x, 3, 2, 1);
    x = layers->forward(x);
    return fc(torch::flatten(torch::adaptive_avg_pool2d(x, {1, 1}), 1));
  }
  bool cifar;
  nn::Conv2d conv1;
  nn::BatchNorm2d bn1;
  nn::Sequential layers;
  nn::Linear fc{nullptr};
};
TORCH_MODULE(ResNet);

// A scope of autocast to bf16.
class Autocast {
 public:
  explicit Autocast(bool enabled) : enabled_(enabled) {
    if (!enabled_) return;
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    at::autocast::set_cpu_enabled(true);
  }
  ~Autocast() {
    if (!enabled_) return;
    at::autocast::clear_cache();
    at::autocast::set_cpu_enabled(false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
};

Workload train_step(const Options& options, int64_t batch, int64_t size, bool channels_last, bool in_bf16) {
  ResNet net(options);
  auto opt = std::make_shared<torch::optim::SGD>(
      net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4));
  auto x = torch::randn({batch, 3, size, size});
  auto y = torch::randint(0, options.classes, {batch}, torch::kLong);
  if (channels_last) {
    x = x.contiguous(at::MemoryFormat::ChannelsLast);
    torch::NoGradGuard off;
    for (auto& p : net->parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
  return work([=]() mutable {
    opt->zero_grad();
    auto loss = [&] {
      Autocast amp(in_bf16);
      return nn::functional::cross_entropy(net->forward(x), y);
    }();
    loss.backward();
    opt->step();
    loss.item<float>();
  });
}

struct Step {
  const char* name;
  Options options;
  int64_t batch, size;
};
const Step kSteps[] = {
    {"resnet18 train step, batch 16", {{2, 2, 2, 2}, false, false, 1000}, 16, 224},
    {"resnet50 train step, batch 8", {{3, 4, 6, 3}, true, false, 1000}, 8, 224},
    {"cifar resnet20 train step, batch 128", {{3, 3, 3}, false, true, 10}, 128, 32},
};

std::vector<Entry> both_layouts() {
  std::vector<Entry> entries;
  for (const bool channels_last : {false, true})
    for (const bool in_bf16 : {false, true})
      for (const Step& s : kSteps)
        entries.push_back({std::string(s.name) + (in_bf16 ? ", bf16" : ""),
                           [=] { return train_step(s.options, s.batch, s.size, channels_last, in_bf16); }});
  return entries;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "resnet", both_layouts());

}  // namespace gradus::bench
