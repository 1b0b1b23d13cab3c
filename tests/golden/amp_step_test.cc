// Three training steps of a small convolutional network in f32 and under autocast, against PyTorch's
// (amp.safetensors, "wide" and torch.autocast("cpu", torch.bfloat16) "low"). By root mean squares, Gradus'
// bf16 steps may differ from the f32 ones by at most twice PyTorch's difference plus one rounding to bf16.
// Single elements may differ more, because signs at ReLUs do.
#include <map>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/golden/golden.h"

namespace gradus {
namespace {

struct Param {
  const char* name;
  Shape shape;
  double scale, added;
};
const Param kParams[] = {
    {"conv1.weight", {8, 3, 3, 3}, 0.25, 0},   {"bn1.weight", {8}, 0.25, 1},  {"bn1.bias", {8}, 0.25, 0},
    {"conv2.weight", {16, 8, 3, 3}, 0.125, 0}, {"bn2.weight", {16}, 0.25, 1}, {"bn2.bias", {16}, 0.25, 0},
    {"fc.weight", {10, 16}, 0.25, 0},          {"fc.bias", {10}, 0.25, 0}};

Tensor from_formula(const Shape& shape, uint64_t key, double scale, double added) {
  std::vector<double> v = golden::formula(shape.product(), key, scale);
  for (double& e : v) e += added;
  return raw::to(tensor(v, shape), DType::kF32);
}

struct Net {
  std::map<std::string, Tensor> p;
  std::vector<Tensor> all;
  Tensor mean1 = zeros({8}), var1 = ones({8}), mean2 = zeros({16}), var2 = ones({16});
  std::map<std::string, DType> dtypes;

  Net() {
    uint64_t key = 1;
    for (const Param& q : kParams) all.push_back(p[q.name] = from_formula(q.shape, key++, q.scale, q.added));
  }
  Tensor operator()(const Tensor& x) {
    const BatchNormFuncOptions training{.training = true};
    const Tensor c = conv2d(x, p["conv1.weight"], {}, {.padding = 1});
    Tensor h = relu(batch_norm(c, p["bn1.weight"], p["bn1.bias"], mean1, var1, training));
    h = conv2d(h, p["conv2.weight"], {}, {.stride = 2, .padding = 1});
    h = relu(batch_norm(h, p["bn2.weight"], p["bn2.bias"], mean2, var2, training));
    h = flatten(adaptive_avg_pool2d(h, 1), 1);
    const Tensor y = linear(h, p["fc.weight"], p["fc.bias"]);
    dtypes = {{"conv", c.dtype()}, {"pooled", h.dtype()}, {"logits", y.dtype()}};
    return y;
  }
};

// Returns the root mean square of a - b, relative to that of b.
double distance(const Tensor& a, const Tensor& b) {
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double difference = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(difference / size);
}

// Trains, under autocast if `low`. Calls check(name in the file, value).
template <class Check> void train(bool low, Check check) {
  const io::SafetensorsFile file = golden::load("amp");
  Net net;
  GradManager gm;
  gm.attach(net.all);
  optim::SGD opt(net.all, {.lr = 0.125});
  const Tensor x = from_formula({4, 3, 16, 16}, 100, 1, 0), target = file.at("target");
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    auto recording = gm.record();
    Tensor logits, loss;
    {
      auto amp = autocast(DType::kBF16, {.enabled = low});
      logits = net(x);
      loss = cross_entropy(logits, target);
    }
    gm.backward(loss);
    losses.push_back(loss.item<double>());
    EXPECT_EQ(loss.dtype(), DType::kF32);
    if (step == 0) {
      check("logits", logits);
      for (const Param& q : kParams) {
        const Tensor g = net.p[q.name].grad();
        ASSERT_EQ(g.dtype(), DType::kF32) << q.name;
        check(concat("grad/", q.name), g);
      }
    }
    opt.step().clear_grad();
  }
  check("losses", tensor(losses, {3}));
  for (const Param& q : kParams) check(concat("param/", q.name), net.p[q.name]);
  if (!low) return;
  for (const auto& [name, type] : net.dtypes)
    // Bytes per element, as in the file.
    EXPECT_EQ(size_of(type), golden::magnitude(file.at("dtype/" + name))) << name;
}

TEST(AmpStep, InF32IsPyTorchs) {
  const io::SafetensorsFile file = golden::load("amp");
  train(false, [&](const std::string& name, const Tensor& value) {
    EXPECT_LE(distance(value, file.at("wide/" + name)), 2e-5) << name;
  });
}

TEST(AmpStep, InBf16IsAsCloseToF32AsPyTorch) {
  const io::SafetensorsFile file = golden::load("amp");
  train(true, [&](const std::string& name, const Tensor& value) {
    const Tensor wide = file.at("wide/" + name);
    const double theirs = distance(file.at("low/" + name), wide), ours = distance(value, wide);
    EXPECT_LE(ours, 2 * theirs + 0x1p-8) << name << ", PyTorch: " << theirs;
    if (name == "logits") {
      EXPECT_GT(ours, 1e-5) << "nothing was rounded to bf16";
    }
  });
}

}  // namespace
}  // namespace gradus
