// Workloads: training steps of the networks in models/gan, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// gan_models_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

nn::ConvTranspose2d up(int64_t in, int64_t out, int64_t stride, int64_t padding) {
  return nn::ConvTranspose2d(
      nn::ConvTranspose2dOptions(in, out, 4).stride(stride).padding(padding).bias(false));
}
nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding, bool bias) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel).stride(stride).padding(padding).bias(bias));
}
nn::Conv2d down(int64_t in, int64_t out, int64_t stride, int64_t padding) {
  return conv(in, out, 4, stride, padding, false);
}
nn::ReLU rectifier() { return nn::ReLU(nn::ReLUOptions().inplace(true)); }
nn::LeakyReLU leaky() { return nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2).inplace(true)); }

void set_up(nn::Sequential& net, bool channels_last, double stddev) {
  torch::NoGradGuard off;
  for (auto& p : net->parameters()) {
    if (p.dim() != 4) continue;
    if (stddev > 0) p.normal_(0, stddev);
    if (channels_last) p.set_data(p.contiguous(at::MemoryFormat::ChannelsLast));
  }
}
torch::Tensor images(int64_t batch, int64_t channels, int64_t size, bool channels_last) {
  const auto x = torch::tanh(torch::randn({batch, channels, size, size}));
  return channels_last ? x.contiguous(at::MemoryFormat::ChannelsLast) : x;
}
// Sets gradients to undefined, as optimizer.zero_grad(set_to_none=true) does.
void clear_grad(nn::Sequential& net) {
  for (auto& p : net->parameters()) p.mutable_grad().reset();
}

// ---- DCGAN ----

struct DcganOptions {
  int64_t size, channels, width, batch;
};

class DcganStep {
 public:
  DcganStep(const DcganOptions& o, bool channels_last)
      : gen_(generator(o)),
        disc_(discriminator(o)),
        real_(images(o.batch, o.channels, o.size, channels_last)) {
    set_up(gen_, channels_last, 0.02);
    set_up(disc_, channels_last, 0.02);
  }

  void run() {
    const auto fake = gen_->forward(torch::randn({real_.size(0), 100, 1, 1}));
    clear_grad(disc_);
    (cross_entropy(disc_->forward(real_), 1) + cross_entropy(disc_->forward(fake.detach()), 0)).backward();
    opt_d_.step();
    for (auto& p : disc_->parameters()) p.requires_grad_(false);  // their gradients are not needed
    clear_grad(gen_);
    cross_entropy(disc_->forward(fake), 1).backward();
    opt_g_.step();
    for (auto& p : disc_->parameters()) p.requires_grad_(true);
  }

 private:
  static nn::Sequential generator(const DcganOptions& o) {
    int64_t width = o.width * o.size / 8;
    nn::Sequential net{up(100, width, 1, 0), nn::BatchNorm2d(width), rectifier()};
    for (; width > o.width; width /= 2) {
      net->push_back(up(width, width / 2, 2, 1));
      net->push_back(nn::BatchNorm2d(width / 2));
      net->push_back(rectifier());
    }
    net->push_back(up(width, o.channels, 2, 1));
    net->push_back(nn::Tanh());
    return net;
  }
  static nn::Sequential discriminator(const DcganOptions& o) {
    int64_t width = o.width;
    nn::Sequential net{down(o.channels, width, 2, 1), leaky()};
    for (int64_t size = o.size / 2; size > 4; size /= 2, width *= 2) {
      net->push_back(down(width, 2 * width, 2, 1));
      net->push_back(nn::BatchNorm2d(2 * width));
      net->push_back(leaky());
    }
    net->push_back(down(width, 1, 1, 0));
    net->push_back(nn::Flatten());
    return net;
  }
  static torch::Tensor cross_entropy(const torch::Tensor& scores, double label) {
    return F::binary_cross_entropy_with_logits(scores, torch::full_like(scores, label));
  }

  nn::Sequential gen_, disc_;
  torch::Tensor real_;
  torch::optim::Adam opt_g_{gen_->parameters(), torch::optim::AdamOptions(2e-4).betas({0.5, 0.999})};
  torch::optim::Adam opt_d_{disc_->parameters(), torch::optim::AdamOptions(2e-4).betas({0.5, 0.999})};
};

// ---- WGAN-GP ----

struct NoiseToFeaturesImpl : nn::Module {
  NoiseToFeaturesImpl(int64_t latent, int64_t channels) : channels(channels), norm(channels) {
    linear = register_module("linear", nn::Linear(nn::LinearOptions(latent, 16 * channels).bias(false)));
    bias = register_parameter("bias", torch::zeros({1, channels, 1, 1}));
    register_module("norm", norm);
  }
  torch::Tensor forward(const torch::Tensor& z) {
    return norm((linear(z).view({z.size(0), channels, 4, 4}) + bias).relu_());
  }
  int64_t channels;
  nn::Linear linear{nullptr};
  torch::Tensor bias;
  nn::BatchNorm2d norm;
};
TORCH_MODULE(NoiseToFeatures);

class WganGpCriticStep {
 public:
  WganGpCriticStep(int64_t size, int64_t width, int64_t batch, bool channels_last)
      : gen_(generator(size, width * size)),
        critic_(critic(size, width * size)),
        real_(images(batch, 3, size, channels_last)) {
    set_up(gen_, channels_last, 0);
    set_up(critic_, channels_last, 0);
  }

  void run() {
    const auto fake = [&] {
      torch::NoGradGuard off;
      return gen_->forward(torch::randn({real_.size(0), 128}));
    }();
    clear_grad(critic_);
    const auto real_scores = critic_->forward(real_), fake_scores = critic_->forward(fake);
    const auto alpha = torch::rand({real_.size(0), 1, 1, 1});
    const auto x = (fake + alpha * (real_ - fake)).requires_grad_();
    const auto score = critic_->forward(x).sum();
    const auto g = torch::autograd::grad({score}, {x}, {}, c10::nullopt, /*create_graph=*/true)[0];
    const auto penalty = (g.reshape({g.size(0), -1}).norm(2, 1) - 1).square().mean();
    (fake_scores.mean() - real_scores.mean() + 10 * penalty).backward();
    opt_.step();
  }

 private:
  // Returns the number of channels at resolution `pixels` x `pixels`.
  static int64_t channels_at(int64_t base, int64_t pixels) { return std::min<int64_t>(base / pixels, 512); }

  static nn::Sequential generator(int64_t size, int64_t base) {
    int64_t in = channels_at(base, 4);
    nn::Sequential net{NoiseToFeatures(128, in)};
    const auto add = [&](int64_t out) {
      net->push_back(conv(in, out, 3, 1, 1, true));
      net->push_back(nn::BatchNorm2d(out));
      net->push_back(rectifier());
      in = out;
    };
    add(in);
    for (int64_t pixels = 8; pixels <= size; pixels *= 2) {
      net->push_back(nn::Upsample(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2})));
      add(channels_at(base, pixels));
      add(channels_at(base, pixels));
    }
    net->push_back(conv(in, 3, 1, 1, 0, true));
    net->push_back(nn::Tanh());
    return net;
  }
  static nn::Sequential critic(int64_t size, int64_t base) {
    int64_t in = channels_at(base, size);
    nn::Sequential net{conv(3, in, 1, 1, 0, true), leaky()};
    const auto add = [&](int64_t out, int64_t kernel) {
      net->push_back(conv(in, out, kernel, 1, kernel == 3 ? 1 : 0, true));
      net->push_back(nn::GroupNorm(1, out));
      net->push_back(leaky());
      in = out;
    };
    for (int64_t pixels = size; pixels > 4; pixels /= 2) {
      add(in, 3);
      add(channels_at(base, pixels / 2), 3);
      net->push_back(nn::AvgPool2d(2));
    }
    add(in, 4);
    net->push_back(nn::Flatten());
    net->push_back(nn::Linear(in, 1));
    return net;
  }

  nn::Sequential gen_, critic_;
  torch::Tensor real_;
  torch::optim::Adam opt_{critic_->parameters(), torch::optim::AdamOptions(1e-4).betas({0.5, 0.9})};
};

// ---- registration ----

std::vector<Entry> steps() {
  struct Dcgan {
    const char* name;
    DcganOptions options;
  };
  std::vector<Entry> entries;
  for (const bool channels_last : {false, true}) {
    for (const Dcgan& d : {Dcgan{"dcgan 64x64 train step, batch 64", {64, 3, 64, 64}},
                           Dcgan{"dcgan 32x32 train step, batch 128", {32, 1, 32, 128}}})
      entries.push_back({d.name, [=] {
                           auto step = std::make_shared<DcganStep>(d.options, channels_last);
                           return work([=] { step->run(); });
                         }});
    entries.push_back({"wgan-gp 64x64 critic train step, batch 16", [=] {
                         auto step = std::make_shared<WganGpCriticStep>(64, 64, 16, channels_last);
                         return work([=] { step->run(); });
                       }});
  }
  return entries;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "gan_models", steps());

}  // namespace gradus::bench
