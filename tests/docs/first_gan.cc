// The program of docs/guide/first-gan.md: trains a GAN on generated digits for two epochs on two ranks.
// Prints losses and the mean pixel of 64 samples, which it writes to samples.png.
#include <iostream>

#include "gradus/gradus.h"
using namespace gradus;

struct Gen : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 64, .out = 32 * 7 * 7}};
  nn::BatchNorm2d norm1{this, "norm1", {.features = 32}};
  nn::ConvTranspose2d up1{this, "up1", {.in = 32, .out = 16, .kernel = 4, .stride = 2, .padding = 1}};
  nn::BatchNorm2d norm2{this, "norm2", {.features = 16}};
  nn::ConvTranspose2d up2{this, "up2", {.in = 16, .out = 1, .kernel = 4, .stride = 2, .padding = 1}};
  Tensor forward(const Tensor& z) override {
    Tensor h = relu(norm1(reshape(fc(z), {z.size(0), 32, 7, 7})));
    return tanh(up2(relu(norm2(up1(h)))));  // f32[N,1,28,28] in [-1, 1]
  }
};

struct Disc : nn::Layer {
  nn::Conv2d down1{this, "down1", {.in = 1, .out = 16, .kernel = 4, .stride = 2, .padding = 1}};
  nn::Conv2d down2{this, "down2", {.in = 16, .out = 32, .kernel = 4, .stride = 2, .padding = 1}};
  nn::Linear fc{this, "fc", {.in = 32 * 7 * 7, .out = 1}};
  Tensor forward(const Tensor& x) override {
    return fc(flatten(leaky_relu(down2(leaky_relu(down1(x), 0.2)), 0.2), 1));
  }
};

void run() {
  manual_seed(1 + uint64_t(dist::get_rank()));  // each rank draws noise of its own
  const data::GeneratedDigits digits({.size = 1024, .transform = data::ToTensor()});
  data::DataLoader loader(digits, {.batch_size = 16, .shuffle = true, .drop_last = true, .seed = 1});

  Gen gen;
  Disc disc;
  dist::DistributedDataParallel ddp_g(gen);  // broadcasts rank 0's weights
  dist::DistributedDataParallel ddp_d(disc);
  GradManager gm_g, gm_d;
  ddp_g.attach(gm_g);
  ddp_d.attach(gm_d);
  optim::Adam opt_g(gen.parameters(), {.lr = 2e-3, .betas = {0.5, 0.999}});
  optim::Adam opt_d(disc.parameters(), {.lr = 2e-3, .betas = {0.5, 0.999}});

  while (loader.epoch() < 2) {
    double loss_d = 0, loss_g = 0;
    for (const data::Batch& b : loader) {  // this rank's share of the epoch
      const Tensor real = b.input * 2 - 1, z = randn({b.size(), 64});
      {
        auto recording = gm_d.record();  // gen(z) is a constant here
        Tensor loss = mean(softplus(-ddp_d(real))) + mean(softplus(ddp_d(gen(z))));
        gm_d.backward(loss);
        opt_d.step().clear_grad();
        loss_d = loss.item<double>();
      }
      {
        auto recording = gm_g.record();  // gradients go through disc, and only gen keeps them
        Tensor loss = mean(softplus(-disc(ddp_g(z))));
        gm_g.backward(loss);
        opt_g.step().clear_grad();
        loss_g = loss.item<double>();
      }
    }
    if (dist::get_rank() == 0)
      std::cout << "epoch " << loader.epoch() << ": discriminator " << loss_d << ", generator " << loss_g
                << std::endl;
  }
  dist::check_synchronized(gen);  // the ranks have one generator, to the last bit
  if (dist::get_rank() == 0) {
    gen.eval();
    const Tensor samples = gen(randn({64, 64}));
    io::save_image("samples.png", samples, {.normalize = true, .value_range = {{-1, 1}}});
    std::cout << "mean of the samples' pixels: " << mean(samples).item<double>() << std::endl;
  }
}

int main() { return dist::launcher({.nproc_per_node = 2}, run); }
