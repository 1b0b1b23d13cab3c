// A GAN small enough to be trained many times in a test. Its networks grow, and take different paths
// from step to step and from rank to rank. Its training on the joined batch of all ranks is what several
// ranks must reproduce.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/layers/conv.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/values.h"

namespace gradus {

enum class GanKind {
  kStatic,  // as DCGAN: the same layers in every step, on every rank
  kGrows,   // as PGGAN: both networks get a layer in the middle of the training, which fades in
  kSkips,   // ranks leave a layer out in turn, and all of them in some steps
  kMixes,   // as StyleGAN: each rank decides at random whether a second style takes part
};

// What a rank's networks do in a step.
struct Path {
  bool skip_block = false;  // a layer is left out
  bool mix = false;         // a second style takes part
  double fade = 1;          // the weight of a grown layer
};

inline Path path_of(GanKind kind, int rank, int step) {
  Path path{.fade = 0.25 * step};
  if (kind == GanKind::kSkips) path.skip_block = step == 2 || (step + rank) % 2 == 0;
  if (kind == GanKind::kMixes) path.mix = philox(77, uint64_t(rank), uint64_t(step))[0] % 2;
  return path;
}
inline bool grows_before(GanKind kind, int step) { return kind == GanKind::kGrows && step == 2; }

// A residual layer, as networks start with and as they grow.
struct SmallBlock : nn::Layer {
  using Layer::Layer;
  nn::Conv2d conv{this, "conv", {.in = 2, .out = 2, .kernel = 3, .padding = 1}};
  Tensor forward(const Tensor& x) override { return x + leaky_relu(conv(x), 0.2); }
};

struct SmallGenerator : nn::Module {
  using Module::Module;
  nn::Linear style{this, "style", {.in = 3, .out = 4}};
  nn::Linear second_style{this, "second_style", {.in = 3, .out = 4}};
  nn::Linear base{this, "base", {.in = 4, .out = 18}};
  SmallBlock block{this, "block"};
  nn::Conv2d to_image{this, "to_image", {.in = 2, .out = 1, .kernel = 1}};
  std::unique_ptr<SmallBlock> grown;

  Tensor operator()(const Tensor& z, const Path& path) {  // [N,3] -> [N,1,3,3]
    Tensor w = tanh(style(z));
    if (path.mix) w = w + 0.5 * tanh(second_style(z));
    Tensor h = reshape(base(w), {-1, 2, 3, 3});
    if (!path.skip_block) h = block(h);
    if (grown) h = lerp(h, (*grown)(h), path.fade);
    return tanh(to_image(h));
  }
};

struct SmallDiscriminator : nn::Module {
  using Module::Module;
  nn::Conv2d from_image{this, "from_image", {.in = 1, .out = 2, .kernel = 1}};
  SmallBlock block{this, "block"};
  nn::Linear score{this, "score", {.in = 18, .out = 1}};
  nn::Buffer seen{this, "seen", zeros({1})};  // the sum of what came in, of every rank's own data
  std::unique_ptr<SmallBlock> grown;
  double seen_here = 0;  // what `seen` is when nobody overwrites it

  Tensor operator()(const Tensor& x, const Path& path) {  // [N,1,3,3] -> [N,1]
    count(x);
    Tensor h = from_image(x);
    if (grown) h = lerp(h, (*grown)(h), path.fade);
    if (!path.skip_block) h = block(h);
    return score(flatten(h, 1));
  }

 private:
  void count(const Tensor& x) {
    const auto off = no_record();
    const Tensor amount = reshape(sum(abs(x)), {1});
    raw::add_(seen, amount);
    seen_here += amount.item<double>();
  }
};

struct SmallGan : nn::Module {
  SmallGenerator gen{this, "gen"};
  SmallDiscriminator disc{this, "disc"};
  SmallGan() { to(DType::kF64); }

  void grow() {
    gen.grown = std::make_unique<SmallBlock>(&gen, "grown");
    disc.grown = std::make_unique<SmallBlock>(&disc, "grown");
    to(DType::kF64);
  }
};

// A rank's part of a step's batch.
struct GanBatch {
  Tensor real, z;
  Path path;
};
inline GanBatch batch_of(GanKind kind, int rank, int step) {
  const uint64_t seed = 1000 * (step + 1) + rank;
  return {random_tensor({2, 1, 3, 3}, DType::kF64, seed), random_tensor({2, 3}, DType::kF64, seed + 500),
          path_of(kind, rank, step)};
}

// Two forwards of the discriminator, and those of a gradient penalty.
inline Tensor discriminator_loss(SmallGan& gan, const GanBatch& b, bool penalty, bool detach_fake = false) {
  Tensor fake = gan.gen(b.z, b.path);
  if (detach_fake) fake = detach(fake);
  const Tensor loss = mean(square(gan.disc(fake, b.path))) + mean(square(gan.disc(b.real, b.path) - 1));
  if (!penalty) return loss;
  const Tensor gx =
      autograd::grad([&](const Tensor& x) { return sum(gan.disc(x, b.path)); }, lerp(fake, b.real, 0.3));
  return loss + mean(square(norm(gx, {1, 2, 3}) - 1));
}
inline Tensor generator_loss(SmallGan& gan, const GanBatch& b) {
  return mean(square(gan.disc(gan.gen(b.z, b.path), b.path) - 1));
}

// The networks with their optimizers.
struct GanTraining {
  SmallGan gan;
  optim::SGDOptions options{.lr = 0.05, .momentum = 0.9};
  optim::SGD opt_d{gan.disc.parameters(), options}, opt_g{gan.gen.parameters(), options};

  void grow() {
    gan.grow();
    opt_d.add_param_group(gan.disc.grown->parameters(), options);
    opt_g.add_param_group(gan.gen.grown->parameters(), options);
  }
  void clear_grad() {
    opt_d.clear_grad();
    opt_g.clear_grad();
  }
  std::vector<double> weights() const {
    std::vector<double> all;
    for (const Tensor& p : gan.parameters())
      for (const double v : p.to_vector<double>()) all.push_back(v);
    return all;
  }
};

// The weights after each step of the discriminator and of the generator, trained by one process on the
// batches of `world` ranks together.
inline std::vector<std::vector<double>> train_joined(int world, int steps, bool penalty,
                                                     const std::function<GanBatch(int rank, int step)>& batch,
                                                     const std::function<bool(int step)>& grows) {
  manual_seed(1);
  GanTraining t;
  GradManager gm_d, gm_g;
  gm_d.attach(t.gan.disc.parameters());
  gm_g.attach(t.gan.gen.parameters());
  std::vector<std::vector<double>> after;
  const auto mean_over_ranks = [&](int step, auto loss) {
    Tensor total = loss(batch(0, step));
    for (int r = 1; r < world; ++r) total = total + loss(batch(r, step));
    return total / double(world);
  };
  for (int step = 0; step < steps; ++step) {
    if (grows(step)) {
      t.grow();
      gm_d.attach(t.gan.disc.grown->parameters());
      gm_g.attach(t.gan.gen.grown->parameters());
    }
    {
      auto recording = gm_d.record();
      gm_d.backward(
          mean_over_ranks(step, [&](const GanBatch& b) { return discriminator_loss(t.gan, b, penalty); }));
      t.opt_d.step();
      t.clear_grad();
    }
    after.push_back(t.weights());
    {
      auto recording = gm_g.record();
      gm_g.backward(mean_over_ranks(step, [&](const GanBatch& b) { return generator_loss(t.gan, b); }));
      t.opt_g.step();
      t.clear_grad();
    }
    after.push_back(t.weights());
  }
  return after;
}

}  // namespace gradus
