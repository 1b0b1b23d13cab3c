// Workload: a training step of a small DCGAN (Radford et al., ICLR 2016), in Gradus.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in other files of
// this folder (gan_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

constexpr int64_t kBatch = 16, kLatent = 64, kWidth = 32;

struct Generator : nn::Layer {
  nn::ConvTranspose2d up1{this, "up1", {.in = kLatent, .out = 4 * kWidth, .kernel = 4, .bias = false}};
  nn::BatchNorm2d norm1{this, "norm1", {.features = 4 * kWidth}};
  nn::ConvTranspose2d up2{
      this,
      "up2",
      {.in = 4 * kWidth, .out = 2 * kWidth, .kernel = 4, .stride = 2, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm2{this, "norm2", {.features = 2 * kWidth}};
  nn::ConvTranspose2d up3{
      this, "up3", {.in = 2 * kWidth, .out = kWidth, .kernel = 4, .stride = 2, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm3{this, "norm3", {.features = kWidth}};
  nn::ConvTranspose2d up4{this, "up4", {.in = kWidth, .out = 3, .kernel = 4, .stride = 2, .padding = 1}};
  Tensor forward(const Tensor& z) override {  // [N,kLatent,1,1] -> [N,3,32,32]
    return tanh(up4(relu(norm3(up3(relu(norm2(up2(relu(norm1(up1(z)))))))))));
  }
};

struct Discriminator : nn::Layer {
  nn::Conv2d down1{this, "down1", {.in = 3, .out = kWidth, .kernel = 4, .stride = 2, .padding = 1}};
  nn::Conv2d down2{this,
                   "down2",
                   {.in = kWidth, .out = 2 * kWidth, .kernel = 4, .stride = 2, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm2{this, "norm2", {.features = 2 * kWidth}};
  nn::Conv2d down3{
      this,
      "down3",
      {.in = 2 * kWidth, .out = 4 * kWidth, .kernel = 4, .stride = 2, .padding = 1, .bias = false}};
  nn::BatchNorm2d norm3{this, "norm3", {.features = 4 * kWidth}};
  nn::Conv2d score{this, "score", {.in = 4 * kWidth, .out = 1, .kernel = 4}};
  Tensor forward(const Tensor& x) override {
    const Tensor h = leaky_relu(norm2(down2(leaky_relu(down1(x), 0.2))), 0.2);
    return flatten(score(leaky_relu(norm3(down3(h)), 0.2)));
  }
};

// Steps of the discriminator and of the generator with the non-saturating loss, on one fixed batch.
struct Step {
  Step() { gm_g.attach(gen.parameters()), gm_d.attach(disc.parameters()); }
  void run() {
    const Tensor z = randn({kBatch, kLatent, 1, 1});
    {
      auto recording = gm_d.record();
      gm_d.backward(mean(softplus(-disc(real))) + mean(softplus(disc(gen(z)))));
      opt_d.step().clear_grad();
    }
    auto recording = gm_g.record();
    gm_g.backward(mean(softplus(-disc(gen(z)))));
    opt_g.step().clear_grad();
  }

  Generator gen;
  Discriminator disc;
  GradManager gm_g, gm_d;
  optim::Adam opt_g{gen.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}}};
  optim::Adam opt_d{disc.parameters(), {.lr = 2e-4, .betas = {0.5, 0.999}}};
  Tensor real = tanh(randn({kBatch, 3, 32, 32}));
};

}  // namespace

static const AddWorkloads added(Side::kGradus, "gan", {{"dcgan 32x32 train step, batch 16", [] {
                                                          auto step = std::make_shared<Step>();
                                                          return work([=] { step->run(); });
                                                        }}});

}  // namespace gradus::bench
