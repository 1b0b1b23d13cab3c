// Training steps of the MNIST network against PyTorch's (mnist.safetensors): logits, loss, gradients of all
// parameters, the losses of four steps of Adadelta under StepLR, and the parameters afterward.
#include <map>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optimizers/rmsprop.h"
#include "gradus/optim/schedules/lr_schedule.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

struct Param {
  const char* name;
  Shape shape;
  double fan_in;
};
const Param kParams[] = {{"conv1.weight", {32, 1, 3, 3}, 9},    {"conv1.bias", {32}, 9},
                         {"conv2.weight", {64, 32, 3, 3}, 288}, {"conv2.bias", {64}, 288},
                         {"fc1.weight", {128, 9216}, 9216},     {"fc1.bias", {128}, 9216},
                         {"fc2.weight", {10, 128}, 128},        {"fc2.bias", {10}, 128}};

Tensor from_formula(const Shape& shape, uint64_t key, double scale, DType t) {
  return raw::to(tensor(golden::formula(shape.product(), key, scale), shape), t);
}

Tensor logits_of(const std::map<std::string, Tensor>& p, const Tensor& x) {
  Tensor h = relu(conv2d(x, p.at("conv1.weight"), p.at("conv1.bias")));
  h = relu(conv2d(h, p.at("conv2.weight"), p.at("conv2.bias")));
  h = flatten(max_pool2d(h, {.kernel = 2}), 1);
  h = relu(linear(h, p.at("fc1.weight"), p.at("fc1.bias")));
  return linear(h, p.at("fc2.weight"), p.at("fc2.bias"));
}

// Returns every stride-th element, at most 61, as the file stores them.
Tensor sample(const Tensor& x) {
  const std::vector<double> all = x.to_vector<double>();
  const size_t stride = std::max<size_t>(1, all.size() / 61);
  std::vector<double> some;
  for (size_t i = 0; i < all.size() && some.size() < 61; i += stride) some.push_back(all[i]);
  return tensor(some, {int64_t(some.size())});
}

// `tolerance` is relative to the largest element of `expected`.
void expect_relative(const Tensor& given, const Tensor& expected, double tolerance, const std::string& what) {
  const double largest = golden::magnitude(expected, 1e-300);
  golden::expect_near(given, expected, tolerance * largest / golden::magnitude(expected), what);
}

// The tolerances of logits and first loss, of gradients, and of later losses and parameters, all relative.
void check(DType t, double forward, double gradients, double later) {
  const io::SafetensorsFile file = golden::load("mnist");
  std::map<std::string, Tensor> p;
  std::vector<Tensor> params;
  uint64_t key = 1;
  for (const Param& q : kParams) {
    const double scale = std::exp2(std::round(std::log2(1 / std::sqrt(q.fan_in))));
    p[q.name] = from_formula(q.shape, key++, scale, t);
    params.push_back(p[q.name]);
  }
  const Tensor x = from_formula({4, 1, 28, 28}, 100, 1, t), target = file.at("target");
  GradManager gm;
  gm.attach(params);
  optim::Adadelta opt(params, {.lr = 1.0});
  optim::StepLR schedule(opt, {.step_size = 1, .gamma = 0.7});
  std::vector<double> losses;
  for (int step = 0; step < 4; ++step) {
    {
      auto recording = gm.record();
      const Tensor logits = logits_of(p, x);
      const Tensor loss = cross_entropy(logits, target);
      gm.backward(loss);
      losses.push_back(loss.item<double>());
      if (step == 0) expect_relative(logits, file.at("logits"), forward, "logits");
    }
    if (step == 0) {
      for (const Param& q : kParams) {
        const std::string name = q.name;
        const Tensor g = p[name].grad();
        expect_relative(sample(g), file.at("grad/" + name), gradients, "gradient of " + name);
        double norm = 0, total = 0;
        for (double v : g.to_vector<double>()) norm += v * v, total += v;
        norm = std::sqrt(norm);
        const double expected = file.at("grad_norm/" + name).item<double>();
        EXPECT_NEAR(norm, expected, gradients * expected) << name;
        // A sum of n elements of this norm is at most sqrt(n) times it.
        EXPECT_NEAR(total, file.at("grad_sum/" + name).item<double>(),
                    gradients * expected * std::sqrt(double(g.numel())))
            << name;
      }
    }
    opt.step().clear_grad();
    schedule.step();
  }
  const std::vector<double> expected = file.at("losses").to_vector<double>();
  EXPECT_NEAR(losses[0], expected[0], forward * expected[0]);
  for (size_t i = 1; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], later * expected[i]) << "step " << i;
  for (const Param& q : kParams) {
    expect_relative(sample(p[q.name]), file.at(std::string("param/") + q.name), later, q.name);
  }
}

TEST(MnistStep, AgreesInF64) { check(DType::kF64, 1e-9, 1e-9, 1e-9); }

// The longest chain of sums is fc1 with 9216 terms after conv2 with 288: about sqrt(9504) roundings of 6e-8
// each. The first steps of Adadelta divide gradients by about their own size, so relative errors of small
// gradients become errors of parameters.
TEST(MnistStep, AgreesInF32) { check(DType::kF32, 2e-5, 1e-4, 1e-2); }

}  // namespace
}  // namespace gradus
