// SNGAN, R3GAN and ConditionalBatchNorm2d against PyTorch (newer.py wrote and describes the file): results, gradients,
// the gradients of R1 and R2 penalties by name of the case (golden_layers.h has the tolerances), and 5 training steps.
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/tests/golden/uniform.h"
#include "gradus/tests/nn/layers/golden_layers.h"
#include "gradus/train/gan/gan.h"

namespace gradus::golden {
namespace {

using namespace models;

const char* const kFile = "tests/golden/gan/newer.safetensors";

// A case whose second input are labels.
template <class L> GoldenLayer with_labels(std::string name, typename L::Options options) {
  return golden<L>(std::move(name), options, [](L& net, X x) { return net(x[0], x[1]); });
}

// The case `name`/penalties: R1 + R2 of real images, fake images and, for a conditional discriminator, labels.
template <class L> GoldenLayer penalties(std::string name, typename L::Options options) {
  return golden<L>(std::move(name), options, [](L& net, X x) {
    if (x.size() == 2) return gan::r1(net, x[0]) + gan::r2(net, x[1]);
    const auto judge = [&](const Tensor& images) { return net(images, x[2]); };
    const Tensor real = gan::r1(judge, x[0]);
    return real + gan::r2(judge, x[1]);
  });
}

// A relative tolerance of 4e-6 in f32: some 40 layers, forward and backward, round by 6e-8 each.
std::vector<GoldenLayer> deep(std::vector<GoldenLayer> networks) {
  for (GoldenLayer& n : networks) n.single = 4e-6;
  return networks;
}

const R3GANDiscriminatorOptions kLabels = {
    .widths = {6, 4}, .channels = 1, .classes = 3, .blocks = 1, .expansion = 3, .group_width = 2};

}  // namespace

static const bool added = add_golden_layers(
    kFile,
    deep({
        with_labels<nn::ConditionalBatchNorm2d>("ConditionalBatchNorm2d", {.features = 3, .classes = 4}),
        with_labels<nn::ConditionalBatchNorm2d>("ConditionalBatchNorm2d/plus_one",
                                                {.features = 3, .classes = 4, .eps = 1e-2, .plus_one = true}),

        with_labels<SNGANGenerator>("SNGANGenerator", {.size = 16, .latent = 5, .classes = 3, .width = 4}),
        with_labels<SNGANGenerator>(
            "SNGANGenerator/paper",
            {.size = 8, .channels = 1, .latent = 4, .classes = 2, .width = 3, .init = SNGANInit::kPaper}),
        golden<SNGANGenerator>("SNGANGenerator/unlabeled",
                               {.size = 8, .channels = 1, .latent = 4, .width = 3}),
        with_labels<SNGANDiscriminator>("SNGANDiscriminator", {.channels = 1, .classes = 3, .width = 2}),
        with_labels<SNGANDiscriminator>(
            "SNGANDiscriminator/paper",
            {.size = 16, .channels = 1, .classes = 2, .width = 3, .init = SNGANInit::kPaper}),
        golden<SNGANDiscriminator>("SNGANDiscriminator/unlabeled", {.size = 16, .channels = 1, .width = 3}),
        penalties<SNGANDiscriminator>("SNGANDiscriminator/penalties",
                                      {.size = 16, .channels = 2, .classes = 3, .width = 3}),

        golden<R3GANGenerator>("R3GANGenerator", {.widths = {4, 4, 2}, .latent = 5, .group_width = 4}),
        with_labels<R3GANGenerator>("R3GANGenerator/labels", {.widths = {6, 4},
                                                              .channels = 1,
                                                              .latent = 3,
                                                              .classes = 3,
                                                              .blocks = 1,
                                                              .expansion = 3,
                                                              .group_width = 2}),
        golden<R3GANDiscriminator>("R3GANDiscriminator",
                                   {.widths = {4, 4, 2}, .channels = 1, .group_width = 4}),
        with_labels<R3GANDiscriminator>("R3GANDiscriminator/labels", kLabels),
        penalties<R3GANDiscriminator>("R3GANDiscriminator/penalties",
                                      {.widths = {4, 6, 2}, .channels = 1, .group_width = 4}),
        penalties<R3GANDiscriminator>("R3GANDiscriminator/penalties/labels", kLabels),
    }));

namespace {

constexpr int64_t kSteps = 5, kBatch = 4, kClasses = 3, kLatent = 5;

// Returns scale * u for the pseudorandom u in [-1, 1) of uniform.h, in f64.
Tensor from_formula(const std::string& name, const Shape& shape, double scale = 1) {
  std::vector<double> v = uniform(name, shape.product());
  for (double& u : v) u *= scale;
  return to(tensor(v, shape), DType::kF64);
}

// Sets the initial state of steps.py (value_of); `scale` multiplies the parameters.
void fill(nn::Module& net, double scale) {
  net.to(DType::kF64);
  nn::StateDict state;
  for (const auto& [name, t] : net.state_dict()) {
    if (name.ends_with("num_batches_tracked")) {
      state.emplace_back(name, t);
    } else if (name.ends_with("running_var")) {
      state.emplace_back(name, 1 + from_formula(name, t.shape(), 0.5));
    } else if (name.ends_with("running_mean") || name.ends_with("weight_u") || name.ends_with("weight_v")) {
      state.emplace_back(name, from_formula(name, t.shape(), 0.125));
    } else if (name.ends_with("weight_orig")) {
      state.emplace_back(name, from_formula(name, t.shape(), 2 * scale));
    } else if (name.ends_with("weight") && t.dim() > 1) {
      const double fan = double(t.numel() / t.size(0));
      const double bound = std::exp2(std::floor(std::log2(std::sqrt(6 / fan)) + 0.5));
      state.emplace_back(name, from_formula(name, t.shape(), bound * scale));
    } else if (name.ends_with("weight")) {
      state.emplace_back(name, scale * (1 + from_formula(name, t.shape(), 0.25)));
    } else {
      state.emplace_back(name, from_formula(name, t.shape(), 0.125 * scale));
    }
  }
  net.load_state_dict(state);
}

struct Steps {
  const char* name;
  optim::AdamOptions adam;
  double gamma, scale;
  Tensor (*loss_d)(const Tensor& real, const Tensor& fake);
  Tensor (*loss_g)(const Tensor& real, const Tensor& fake);
};

// Expects |value - PyTorch's| <= 1e-9 of the larger of the tensor's largest element and `scale`.
void expect_equal(const io::SafetensorsFile& file, const Tensor& value, const std::string& key,
                  double scale) {
  const Tensor expected = file.at(key);
  ASSERT_TRUE(value.defined()) << key;
  ASSERT_EQ(to_string(value.shape()), to_string(expected.shape())) << key;
  const std::vector<double> v = value.to_vector<double>(), e = expected.to_vector<double>();
  for (const double x : e) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < v.size(); ++i) ASSERT_NEAR(v[i], e[i], 1e-9 * scale) << key << " at " << i;
}

template <class G, class D>
void expect_steps(const Steps& c, typename G::Options g_options, typename D::Options d_options) {
  const io::SafetensorsFile file = io::load_safetensors(kFile);
  const std::string prefix = std::string("steps/") + c.name + "/";
  G gen(g_options);
  D disc(d_options);
  fill(gen, c.scale);
  fill(disc, c.scale);
  GradManager gm_d, gm_g;
  gm_d.attach(disc.parameters());
  gm_g.attach(gen.parameters());
  optim::Adam opt_d(disc.parameters(), c.adam), opt_g(gen.parameters(), c.adam);
  const auto expect_gradients = [&](const nn::Module& net, const std::string& which) {
    double largest = 0;
    for (const auto& [name, p] : net.named_parameters())
      largest = std::max(largest, max(abs(p.grad())).template item<double>());
    for (const auto& [name, p] : net.named_parameters())
      expect_equal(file, p.grad(), prefix + which + "/" + name, 1e-3 * largest);
  };
  std::vector<double> losses;
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::string n = std::to_string(step);
    const Tensor real = from_formula("real" + n, {kBatch, 3, 16, 16});
    std::vector<int64_t> classes;
    for (int64_t i = 0; i < kBatch; ++i) classes.push_back((i + step) % kClasses);
    const Tensor labels = tensor(classes, {kBatch});
    {
      auto recording = gm_d.record();
      const Tensor fake = gen(from_formula("zd" + n, {kBatch, kLatent}, 2), labels);
      const Tensor real_scores = disc(real, labels), fake_scores = disc(fake, labels);
      Tensor loss = c.loss_d(real_scores, fake_scores);
      if (c.gamma > 0) {
        const auto judge = [&](const Tensor& x) { return disc(x, labels); };
        const Tensor r1 = gan::r1(judge, real);
        loss = loss + c.gamma / 2 * (r1 + gan::r2(judge, fake));
      }
      gm_d.backward(loss);
      losses.push_back(loss.item<double>());
    }
    if (step == 0) expect_gradients(disc, "d");
    opt_d.step().clear_grad();
    {
      auto recording = gm_g.record();
      const Tensor fake = gen(from_formula("zg" + n, {kBatch, kLatent}, 2), labels);
      const Tensor real_scores = disc(real, labels), fake_scores = disc(fake, labels);
      const Tensor loss = c.loss_g(real_scores, fake_scores);
      gm_g.backward(loss);
      losses.push_back(loss.item<double>());
    }
    if (step == 0) expect_gradients(gen, "g");
    opt_g.step().clear_grad();
  }
  const std::vector<double> expected = file.at(prefix + "losses").to_vector<double>();
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-9) << i;
  for (const auto& [name, t] : disc.state_dict()) expect_equal(file, t, prefix + "disc/" + name, 1e-3);
  for (const auto& [name, t] : gen.state_dict()) expect_equal(file, t, prefix + "gen/" + name, 1e-3);
}

TEST(NewerGanSteps, OfSNGANAgreeWithPyTorch) {
  expect_steps<SNGANGenerator, SNGANDiscriminator>(
      {"sngan",
       {.lr = 1e-3, .betas = {0.5, 0.999}, .eps = 1e-3},
       0,
       1,
       gan::hinge_d,
       [](const Tensor&, const Tensor& fake) { return gan::hinge_g(fake); }},
      {.size = 16, .latent = kLatent, .classes = kClasses, .width = 4},
      {.size = 16, .classes = kClasses, .width = 3});
}

TEST(NewerGanSteps, OfR3GANAgreeWithPyTorch) {
  expect_steps<R3GANGenerator, R3GANDiscriminator>(
      {"r3gan",
       {.lr = 1e-3, .betas = {0.0, 0.9}, .eps = 1e-3},
       0.1,
       0.75,
       gan::relativistic_d,
       gan::relativistic_g},
      {.widths = {4, 6, 2}, .latent = kLatent, .classes = kClasses, .group_width = 4},
      {.widths = {4, 6, 2}, .classes = kClasses, .group_width = 4});
}

}  // namespace
}  // namespace gradus::golden
