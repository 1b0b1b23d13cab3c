// Training steps of GANs against PyTorch's: losses, penalties, gradients, weights after a step of Adam,
// buffers, the generator's average, and the losses of 20 steps. steps.py wrote and describes the file.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/models/models.h"
#include "gradus/optim/averaged_model.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/tests/golden/uniform.h"
#include "gradus/train/gan/gan.h"

namespace gradus::golden {
namespace {

using namespace models;

constexpr int64_t kSteps = 20, kBatch = 4;

const io::SafetensorsFile& file() {
  static const io::SafetensorsFile f = io::load_safetensors("tests/golden/gan/steps.safetensors");
  return f;
}

// Returns offset + scale * u for the pseudorandom u in [-1, 1) of uniform.h.
Tensor from_formula(const std::string& name, const Shape& shape, double scale = 1, double offset = 0) {
  std::vector<double> v = uniform(name, shape.product());
  for (double& u : v) u = offset + scale * u;
  return tensor(v, shape);
}

// Returns the initial value of a parameter or buffer, as value_of in steps.py.
Tensor value_of(const std::string& name, const Tensor& t) {
  if (name.ends_with("num_batches_tracked")) return tensor(std::vector<int64_t>{0}, {});
  if (name.ends_with("running_var")) return from_formula(name, t.shape(), 0.5, 1);
  if (name.ends_with("weight_orig")) return from_formula(name, t.shape(), 2);
  if (t.dim() > 1 && name.ends_with("weight") && name.find(".LN2d.") == std::string::npos) {
    const double fan = double(t.numel() / t.size(0));
    return from_formula(name, t.shape(), std::exp2(std::floor(std::log2(std::sqrt(6 / fan)) + 0.5)));
  }
  return name.ends_with("weight") ? from_formula(name, t.shape(), 0.25, 1)
                                  : from_formula(name, t.shape(), 0.125);
}

void fill(nn::Module& net, DType t) {
  net.to(t);
  nn::StateDict state;
  for (const auto& [name, own] : net.state_dict()) state.emplace_back(name, value_of(name, own));
  net.load_state_dict(state);
}

// A GAN: its networks, losses, penalty and optimizer.
struct Case {
  std::string name;
  Shape image;
  int64_t latent;
  optim::AdamOptions adam;
  std::function<Tensor(const Tensor& real, const Tensor& fake)> loss_d;
  std::function<Tensor(const Tensor& fake)> loss_g;
  std::function<Tensor(const std::function<Tensor(const Tensor&)>& disc, const Tensor& real,
                       const Tensor& fake, const Tensor& alpha)>
      penalty = {};
  double weight = 0;  // of the penalty
  double drift = 0;
  struct Networks {
    std::unique_ptr<nn::Module> gen, disc;
    std::function<Tensor(const Tensor&)> generate, judge;
  };
  std::function<Networks()> make = {};
};

// Networks that are called with one tensor; grown() makes some that are called at a scale.
template <class G, class D>
std::function<Case::Networks()> plain(typename G::Options g, typename D::Options d) {
  return [g, d] {
    auto gen = std::make_unique<G>(g);
    auto disc = std::make_unique<D>(d);
    Case::Networks nets = {.generate = [&net = *gen](const Tensor& z) { return net(z); },
                           .judge = [&net = *disc](const Tensor& x) { return net(x); }};
    nets.gen = std::move(gen);
    nets.disc = std::move(disc);
    return nets;
  };
}
std::function<Case::Networks()> grown(PGGANGeneratorOptions g, PGGANDiscriminatorOptions d, Scale scale) {
  return [g, d, scale] {
    auto gen = std::make_unique<PGGANGenerator>(g);
    auto disc = std::make_unique<PGGANDiscriminator>(d);
    Case::Networks nets = {.generate = [&net = *gen, scale](const Tensor& z) { return net(z, scale); },
                           .judge = [&net = *disc, scale](const Tensor& x) { return net(x, scale); }};
    nets.gen = std::move(gen);
    nets.disc = std::move(disc);
    return nets;
  };
}

std::vector<Case> cases() {
  const auto adam = [](double lr, double beta1, double beta2) {
    return optim::AdamOptions{.lr = lr, .betas = {beta1, beta2}, .eps = 1e-3};
  };
  const auto penalty = [](const auto& disc, const Tensor& real, const Tensor& fake, const Tensor& alpha) {
    return gan::gradient_penalty(disc, real, fake, alpha);
  };
  const auto vanilla_d = [](const Tensor& r, const Tensor& f) { return gan::vanilla_d(r, f); };
  const auto vanilla_g = [](const Tensor& f) { return gan::vanilla_g(f); };

  const Case dcgan = {
      .name = "dcgan",
      .image = {1, 16, 16},
      .latent = 6,
      .adam = adam(2e-3, 0.5, 0.999),
      .loss_d = vanilla_d,
      .loss_g = vanilla_g,
      .make = plain<DCGANGenerator, DCGANDiscriminator>({.size = 16, .channels = 1, .width = 2, .latent = 6},
                                                        {.size = 16, .channels = 1, .width = 2})};
  Case smoothed = dcgan, half_lsgan = dcgan;
  smoothed.name = "dcgan_smoothed";
  const gan::LabelOptions labels = {.real = 0.9, .fake = 0.1};
  smoothed.loss_d = [labels](const Tensor& r, const Tensor& f) { return gan::vanilla_d(r, f, labels); };
  smoothed.loss_g = [labels](const Tensor& f) { return gan::vanilla_g(f, labels); };
  half_lsgan.name = "half_lsgan";
  half_lsgan.loss_d = [](const Tensor& r, const Tensor& f) { return gan::lsgan_d(r, f, {.factor = 0.5}); };
  half_lsgan.loss_g = [](const Tensor& f) { return gan::lsgan_g(f, {.factor = 0.5}); };

  Case lsgan = {.name = "lsgan", .image = {1, 32, 32}, .latent = 3, .adam = adam(1e-3, 0.5, 0.99)};
  lsgan.loss_d = [](const Tensor& r, const Tensor& f) { return gan::lsgan_d(r, f); };
  lsgan.loss_g = [](const Tensor& f) { return gan::lsgan_g(f); };
  lsgan.make = plain<LSGANGenerator, LSGANDiscriminator>({.size = 32, .channels = 1, .width = 4, .latent = 3},
                                                         {.size = 32, .channels = 1, .width = 2});

  using Norm = WGANGPDiscriminatorOptions::Norm;
  const auto wgan_networks = [](Norm norm) {
    return plain<WGANGPGenerator, WGANGPDiscriminator>(
        {.size = 8, .latent = 5, .channel_base = 16, .channel_max = 4},
        {.size = 8, .channel_base = 16, .channel_max = 4, .norm = norm});
  };
  const Case wgan = {.name = "wgan_gp",
                     .image = {3, 8, 8},
                     .latent = 5,
                     .adam = adam(1e-3, 0.5, 0.9),
                     .loss_d = gan::wgan_d,
                     .loss_g = gan::wgan_g,
                     .penalty = penalty,
                     .weight = 10,
                     .make = wgan_networks(Norm::kGroup)};
  Case layer_norm = wgan, per_pixel = wgan, hinge = wgan, small = wgan;
  layer_norm.name = "wgan_gp_layer_norm";
  layer_norm.make = wgan_networks(Norm::kLayer);
  per_pixel.name = "wgan_gp_per_pixel";
  per_pixel.penalty = [](const auto& disc, const Tensor& real, const Tensor& fake, const Tensor& alpha) {
    return gan::gradient_penalty(disc, real, fake, alpha, {.per_pixel = true});
  };
  hinge.name = "hinge";
  hinge.penalty = nullptr;
  hinge.loss_d = gan::hinge_d;
  hinge.loss_g = gan::hinge_g;
  small.name = "wgan_gp_small";
  small.image = {1, 28, 28};
  small.make = plain<WGANGPSmallGenerator, WGANGPSmallDiscriminator>({.latent = 5, .width = 1}, {.width = 1});

  const PGGANGeneratorOptions g = {.size = 32, .latent = 5, .channel_base = 16, .channel_max = 4};
  PGGANDiscriminatorOptions d = {.size = 32, .channel_base = 16, .channel_max = 4};
  const Scale scale = {.size = 16, .fade = 0.7};
  Case pggan = wgan;
  pggan.image = {3, 16, 16};
  pggan.adam = adam(1e-3, 0, 0.99);
  Case mmgen_form = pggan;
  mmgen_form.name = "pggan_mmgen";
  mmgen_form.make = grown(mmgen(g), mmgen(d), scale);
  d.group_size = 2;
  pggan.make = grown(g, d, scale);
  Case r1 = pggan;
  pggan.name = "pggan";
  pggan.drift = 0.001;
  r1.name = "pggan_r1";
  r1.loss_d = gan::logistic_d;
  r1.loss_g = gan::logistic_g;
  r1.penalty = [](const auto& disc, const Tensor& real, const Tensor&, const Tensor&) {
    return gan::r1(disc, real);
  };
  r1.weight = 5;
  return {dcgan,     smoothed, lsgan, half_lsgan, wgan,       layer_norm,
          per_pixel, small,    hinge, pggan,      mmgen_form, r1};
}

// Returns the generator's gradients in the first step, with this discriminator, in f64. Each number of the
// generator is perturbed by up to 2^-24 of itself, as by rounding to f32. `move`: its seed; 0: none.
std::map<std::string, std::vector<double>> moved_gradients(const Case& c, const nn::Module& disc, int move) {
  const Case::Networks nets = c.make();
  nets.disc->to(DType::kF64).load_state_dict(disc.state_dict());
  fill(*nets.gen, DType::kF64);
  nn::StateDict state;
  for (const auto& [name, v] : nets.gen->state_dict()) {
    const Tensor factor = from_formula(name + std::to_string(move), v.shape(), move > 0 ? 0x1p-24 : 0, 1);
    // A count of batches is exact.
    state.emplace_back(name, is_floating(v.dtype()) ? v * to(factor, DType::kF64) : v);
  }
  nets.gen->load_state_dict(state);
  GradManager gm;
  gm.attach(nets.gen->parameters());
  auto recording = gm.record();
  const Tensor z = to(from_formula("zg0", {kBatch, c.latent}, 2), DType::kF64);
  gm.backward(c.loss_g(nets.judge(nets.generate(z))));
  std::map<std::string, std::vector<double>> gradients;
  for (const auto& [name, p] : nets.gen->named_parameters())
    if (p.grad().defined()) gradients[name] = p.grad().to_vector<double>();
  return gradients;
}

// Returns how sensitive the generator's gradients are to rounding: by parameter, the largest difference after
// eight perturbations. Norms make it large: a pixel norm divides a pixel's features by their size, which is
// about 1, but 0.01 for some pixels. Those features are then accurate to 1e-5 only, and have the largest
// gradients. The gradient of a bias before a batch norm is a sum that almost cancels.
std::map<std::string, double> moves_by_rounding(const Case& c, const nn::Module& disc) {
  const auto exact = moved_gradients(c, disc, 0);
  std::map<std::string, double> most;
  for (int move = 1; move <= 8; ++move)
    for (const auto& [name, g] : moved_gradients(c, disc, move))
      for (size_t i = 0; i < g.size(); ++i)
        most[name] = std::max(most[name], std::abs(g[i] - exact.at(name)[i]));
  return most;
}

class GanSteps : public testing::TestWithParam<Case> {
 protected:
  // Compares a tensor with the file's. Tolerance in f64: 1e-9 of the tensor's scale, its largest element. In
  // f32: `single` of the scale plus twice PyTorch's own error plus `more`. The scale is at least a millionth
  // (in f32 a tenth) of network_scale, since the gradient of a bias before a norm is rounding alone.
  void compare(const Tensor& given, const std::string& key, double single, double network_scale = 0,
               double more = 0) const {
    const std::string name = GetParam().name + "/" + key;
    const Tensor expected = file().at(name);
    const Tensor value = given.defined() ? given : zeros(expected.shape(), {.dtype = dtype_});
    ASSERT_EQ(to_string(value.shape()), to_string(expected.shape())) << name;
    const std::vector<double> v = value.to_vector<double>(), e = expected.to_vector<double>();
    double scale = (dtype_ == DType::kF64 ? 1e-6 : 0.1) * network_scale;
    for (double x : e) scale = std::max(scale, std::abs(x));
    double allowed = 1e-9 * scale;
    if (value.dtype() == DType::kF32)
      allowed = single * scale + 2 * file().at(name + ".err").item<double>() + more;
    for (size_t i = 0; i < v.size(); ++i)
      ASSERT_NEAR(v[i], e[i], allowed) << name << " at " << i << " in " << name_of(dtype_);
  }
  static double largest(const nn::Module& net) {
    double m = 0;
    for (const auto& [name, p] : net.named_parameters())
      if (p.grad().defined())
        for (double x : p.grad().to_vector<double>()) m = std::max(m, std::abs(x));
    return m;
  }
  // In f32 a gradient may differ by four times its sensitivity. A perturbation rounds each layer once; a step
  // rounds about eight times (weight, products, activation and norm, forward and backward), which together is
  // sqrt(8) times as much, sometimes more: plain loops in f32, in 16 orders of summation, gave a factor of 4.
  void compare_gradients(const nn::Module& net, const std::string& prefix,
                         std::map<std::string, double> moves = {}) const {
    for (const auto& [name, p] : net.named_parameters())
      compare(p.grad(), prefix + "/" + name, 4e-6, largest(net), 4 * moves[name]);
  }
  void compare_state(const nn::StateDict& state, const std::string& prefix) const {
    for (const auto& [name, t] : state) compare(t, prefix + "/" + name, 1e-4);
  }

  void check(DType t);

 private:
  DType dtype_ = DType::kF64;
};

void GanSteps::check(DType t) {
  dtype_ = t;
  const Case& c = GetParam();
  const Case::Networks nets = c.make();
  fill(*nets.gen, t);
  fill(*nets.disc, t);
  GradManager gm_d, gm_g;
  gm_d.attach(nets.disc->parameters());
  gm_g.attach(nets.gen->parameters());
  optim::Adam opt_d(nets.disc->parameters(), c.adam), opt_g(nets.gen->parameters(), c.adam);
  optim::AveragedModel average(*nets.gen, {.decay = 0.9});
  average.update_parameters();

  std::vector<double> losses, penalties;
  for (int64_t step = 0; step < kSteps; ++step) {
    const std::string n = std::to_string(step);
    Shape shape = {kBatch};
    for (int64_t size : c.image) shape.push_back(size);
    const Tensor real = to(from_formula("real" + n, shape), t);
    const auto z = [&](const char* which) {
      return to(from_formula(std::string("z") + which + n, {kBatch, c.latent}, 2), t);
    };
    const Tensor alpha = from_formula("alpha" + n, {kBatch}, 0.5, 0.5);
    const Tensor z_d = z("d");
    if (step == 0 && c.penalty) {  // the penalty's gradient alone
      auto recording = gm_d.record();
      gm_d.backward(c.penalty(nets.judge, real, nets.generate(z_d), alpha));
      compare_gradients(*nets.disc, "penalty");
      opt_d.clear_grad();
      fill(*nets.gen, t);  // restores the generator's buffers; discriminators with a penalty have none
    }
    {
      auto recording = gm_d.record();
      const Tensor fake = nets.generate(z_d);
      const Tensor real_scores = nets.judge(real);  // before the others: the order moves batch norm's buffers
      Tensor loss = c.loss_d(real_scores, nets.judge(fake));
      if (c.penalty) {
        const Tensor penalty = c.penalty(nets.judge, real, fake, alpha);
        penalties.push_back(penalty.item<double>());
        loss = loss + c.weight * penalty;
      }
      if (c.drift > 0) loss = loss + c.drift * gan::drift(nets.judge(real));
      gm_d.backward(loss);
      losses.push_back(loss.item<double>());
    }
    if (step == 0) compare_gradients(*nets.disc, "d");
    opt_d.step().clear_grad();
    std::map<std::string, double> moves;
    if (t == DType::kF32) moves = moves_by_rounding(c, *nets.disc);
    {
      auto recording = gm_g.record();
      const Tensor loss = c.loss_g(nets.judge(nets.generate(z("g"))));
      gm_g.backward(loss);
      losses.push_back(loss.item<double>());
    }
    if (step == 0) compare_gradients(*nets.gen, "g", moves);
    opt_g.step().clear_grad();
    average.update_parameters();
    if (step > 0) continue;
    compare_state(nets.disc->state_dict(), "disc");
    compare_state(nets.gen->state_dict(), "gen");
    compare_state(average.weights(), "ema");
    if (t == DType::kF32) break;  // rounding differences grow in later steps
  }
  const auto compare_numbers = [&](const std::vector<double>& given, const std::string& key) {
    const std::vector<double> expected = file().at(c.name + "/" + key).to_vector<double>();
    for (size_t i = 0; i < given.size(); ++i)
      EXPECT_NEAR(given[i], expected[i],
                  (t == DType::kF64 ? 1e-6 : 1e-4) * std::max(1.0, std::abs(expected[i])))
          << c.name << " " << key << " " << i;
  };
  compare_numbers(losses, "losses");
  compare_numbers(penalties, "penalties");
}

TEST_P(GanSteps, AgreeWithPyTorchInF64) { check(DType::kF64); }
TEST_P(GanSteps, AgreeWithPyTorchInF32) { check(DType::kF32); }

INSTANTIATE_TEST_SUITE_P(, GanSteps, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gradus::golden
