// The comparison's LibTorch side: each workload as a LibTorch user would write it.
#include <torch/torch.h>

#include "benchmarks/contest.h"

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
  auto opt = std::make_shared<torch::optim::SGD>(net->parameters(),
                                                 torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4));
  auto x = torch::randn({batch, 1, 28, 28});
  auto y = torch::randint(0, 10, {batch}, torch::kLong);
  if (channels_last) {
    x = x.contiguous(at::MemoryFormat::ChannelsLast);
    torch::NoGradGuard off;
    for (auto& p : net->parameters())
      if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
  return {"ms", 1, [=] {
            opt->zero_grad();
            auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
            loss.backward();
            opt->step();
          }};
}

Workload repeat(int n, std::function<void()> f, double flops = 0, double bytes = 0) {
  return {n >= 1000 ? "ns" : "ms", n,
          [n, f = std::move(f)] {
            for (int i = 0; i < n; ++i) f();
          },
          flops, bytes};
}

// A function of x without and with its gradient.
Workload conv(int64_t n, int64_t c, int64_t hw, int64_t o, int64_t k, bool backward) {
  auto x = torch::randn({n, c, hw, hw}).contiguous(at::MemoryFormat::ChannelsLast);
  auto w = torch::randn({o, c, k, k}).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t p = hw - k + 1 + 2 * (k / 2);
  const double flops = 2.0 * n * o * p * p * c * k * k;
  if (!backward) return repeat(1, [=] {
    torch::NoGradGuard off;
    torch::conv2d(x, w, {}, 1, k / 2);
  }, flops);
  x.requires_grad_();
  w.requires_grad_();
  auto dy = torch::randn({n, o, p, p}).contiguous(at::MemoryFormat::ChannelsLast);
  return repeat(1, [=] { torch::autograd::grad({torch::conv2d(x, w, {}, 1, k / 2)}, {x, w}, {dy}); }, 3 * flops);
}

}  // namespace

Workload make_libtorch_workload(const std::string& name, int threads) {
  torch::set_num_threads(threads);
  torch::manual_seed(1);
  if (name == "mnist_cnn train step, batch 64") return mnist_step(64, false);
  if (name == "mnist_cnn train step, batch 64, channels-last peer") return mnist_step(64, true);
  if (name == "add of 1-element tensors") {
    auto a = torch::ones({1}), b = torch::ones({1});
    return repeat(20000, [=] {
      torch::NoGradGuard off;
      torch::add(a, b);
    });
  }
  if (name == "add of 1-element tensors, recorded") {
    auto a = torch::ones({1}, torch::requires_grad()), b = torch::ones({1}, torch::requires_grad());
    return repeat(20000, [=] { torch::add(a, b); });
  }
  if (name == "matmul 1024") {
    auto a = torch::randn({1024, 1024}), b = torch::randn({1024, 1024});
    return repeat(1, [=] { torch::matmul(a, b); }, 2.0 * 1024 * 1024 * 1024);
  }
  if (name == "matmul 64x9216x128") {
    auto a = torch::randn({64, 9216}), b = torch::randn({128, 9216});
    return repeat(10, [=] { torch::matmul(a, b.t()); }, 2.0 * 64 * 9216 * 128);
  }
  if (name == "conv 64x32x26, 64 3x3") return conv(64, 32, 26, 64, 3, false);
  if (name == "conv 64x32x26, 64 3x3, and gradients") return conv(64, 32, 26, 64, 3, true);
  if (name == "conv 16x256x14, 256 3x3") return conv(16, 256, 14, 256, 3, false);
  if (name == "conv 16x256x14, 256 3x3, and gradients") return conv(16, 256, 14, 256, 3, true);
  if (name == "softmax 4096x1000") {
    auto x = torch::randn({4096, 1000});
    return repeat(1, [=] { torch::softmax(x, 1); }, 0, 2.0 * x.nbytes());
  }
  if (name == "sum of 16M") {
    auto x = torch::randn({1 << 24});
    return repeat(1, [=] { torch::sum(x); }, 0, x.nbytes());
  }
  if (name == "sum over rows 65536x256") {
    auto x = torch::randn({65536, 256});
    return repeat(1, [=] { torch::sum(x, 0); }, 0, x.nbytes());
  }
  if (name == "add of 16M") {
    auto a = torch::randn({1 << 24}), b = torch::randn({1 << 24});
    return repeat(1, [=] { torch::add(a, b); }, 0, 3.0 * a.nbytes());
  }
  if (name == "exp of 16M") {
    auto a = torch::randn({1 << 24});
    return repeat(1, [=] { torch::exp(a); }, 0, 2.0 * a.nbytes());
  }
  return {};
}

}  // namespace gradus::bench
