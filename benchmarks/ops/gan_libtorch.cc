// Workload: a training step of a small DCGAN (Radford et al., ICLR 2016), in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// gan_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <memory>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

namespace nn = torch::nn;

constexpr int64_t kBatch = 16, kLatent = 64, kWidth = 32;

nn::ConvTranspose2d up(int64_t in, int64_t out, int64_t stride, int64_t padding, bool bias = false) {
  return nn::ConvTranspose2d(
      nn::ConvTranspose2dOptions(in, out, 4).stride(stride).padding(padding).bias(bias));
}
nn::Conv2d down(int64_t in, int64_t out, int64_t stride, int64_t padding, bool bias = false) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 4).stride(stride).padding(padding).bias(bias));
}
nn::LeakyReLU leaky() { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)); }

struct Step {
  explicit Step(bool channels_last) {
    if (!channels_last) return;
    torch::NoGradGuard off;
    for (auto* net : {&gen, &disc})
      for (auto& p : (*net)->parameters())
        if (p.dim() == 4) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
    real = real.contiguous(at::MemoryFormat::ChannelsLast);
  }
  void run() {
    auto z = torch::randn({kBatch, kLatent, 1, 1});
    opt_d.zero_grad();
    auto fake = [&] {
      torch::NoGradGuard off;
      return gen->forward(z);
    }();
    auto loss = torch::softplus(-disc->forward(real)).mean() + torch::softplus(disc->forward(fake)).mean();
    loss.backward();
    opt_d.step();
    opt_g.zero_grad();
    torch::softplus(-disc->forward(gen->forward(z))).mean().backward();
    opt_g.step();
  }

  nn::Sequential gen{up(kLatent, 4 * kWidth, 1, 0),
                     nn::BatchNorm2d(4 * kWidth),
                     nn::ReLU(),
                     up(4 * kWidth, 2 * kWidth, 2, 1),
                     nn::BatchNorm2d(2 * kWidth),
                     nn::ReLU(),
                     up(2 * kWidth, kWidth, 2, 1),
                     nn::BatchNorm2d(kWidth),
                     nn::ReLU(),
                     up(kWidth, 3, 2, 1, true),
                     nn::Tanh()};
  nn::Sequential disc{down(3, kWidth, 2, 1, true),
                      leaky(),
                      down(kWidth, 2 * kWidth, 2, 1),
                      nn::BatchNorm2d(2 * kWidth),
                      leaky(),
                      down(2 * kWidth, 4 * kWidth, 2, 1),
                      nn::BatchNorm2d(4 * kWidth),
                      leaky(),
                      down(4 * kWidth, 1, 1, 0, true),
                      nn::Flatten()};
  torch::optim::Adam opt_g{gen->parameters(), torch::optim::AdamOptions(2e-4).betas({0.5, 0.999})};
  torch::optim::Adam opt_d{disc->parameters(), torch::optim::AdamOptions(2e-4).betas({0.5, 0.999})};
  torch::Tensor real = torch::tanh(torch::randn({kBatch, 3, 32, 32}));
};

Entry entry(bool channels_last) {
  return {"dcgan 32x32 train step, batch 16", [=] {
            auto step = std::make_shared<Step>(channels_last);
            return work([=] { step->run(); });
          }};
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "gan", {entry(false), entry(true)});

}  // namespace gradus::bench
