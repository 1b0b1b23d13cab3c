// Workloads: the training step of the MNIST network and the smallest ops, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// core_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <memory>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 32, 3)}, conv2{torch::nn::Conv2dOptions(32, 64, 3)};
  torch::nn::Linear fc1{9216, 128}, fc2{128, 10};
  torch::nn::Dropout drop1{0.25}, drop2{0.5};
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("drop1", drop1);
    register_module("drop2", drop2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv2(torch::relu(conv1(x))));
    x = torch::flatten(drop1(torch::max_pool2d(x, 2)), 1);
    return fc2(drop2(torch::relu(fc1(x))));
  }
};

Workload mnist_step(int64_t batch, bool channels_last) {
  auto net = std::make_shared<NetImpl>();
  auto opt = std::make_shared<torch::optim::SGD>(
      net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4));
  auto x = torch::randn({batch, 1, 28, 28});
  auto y = torch::randint(0, 10, {batch}, torch::kLong);
  if (channels_last) {
    x = x.contiguous(at::MemoryFormat::ChannelsLast);
    torch::NoGradGuard off;
    for (auto& p : net->parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
  return work([=] {
    opt->zero_grad();
    auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    opt->step();
  });
}

}  // namespace

void set_up_libtorch(int threads) {
  torch::set_num_threads(threads);
  torch::manual_seed(1);
}

static const AddWorkloads added(Side::kLibTorch, "core",
                                {
                                    {"mnist_cnn train step, batch 64", [] { return mnist_step(64, false); }},
                                    {"mnist_cnn train step, batch 64", [] { return mnist_step(64, true); }},
                                    {"add of 1-element tensors",
                                     [] {
                                       auto a = torch::ones({1}), b = torch::ones({1});
                                       return tiny([=] {
                                         torch::NoGradGuard off;
                                         torch::add(a, b);
                                       });
                                     }},
                                    {"add of 1-element tensors, recorded",
                                     [] {
                                       auto a = torch::ones({1}, torch::requires_grad()),
                                            b = torch::ones({1}, torch::requires_grad());
                                       return tiny([=] { torch::add(a, b); });
                                     }},
                                });

}  // namespace gradus::bench
