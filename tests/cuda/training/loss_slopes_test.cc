// Point-wise losses of up to 4096 elements compute their gradient with their value, bit-equal to the kernel
// point_loss_backward. A backward that begins with 1 uses it; any other launches that kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};
using Loss = std::function<Tensor(const Tensor& x, const Tensor& target)>;

struct Named {
  const char* name;
  Loss loss;
};
const std::vector<Named>& losses() {
  static const std::vector<Named> all = {
      {"mse", [](const Tensor& x, const Tensor& t) { return nn::mse_loss(x, t); }},
      {"mse, summed",
       [](const Tensor& x, const Tensor& t) { return nn::mse_loss(x, t, {.reduction = Reduction::kSum}); }},
      {"mse to", [](const Tensor& x, const Tensor&) { return nn::mse_loss_to(x, 0.9); }},
      {"l1", [](const Tensor& x, const Tensor& t) { return nn::l1_loss(x, t); }},
      {"smooth l1", [](const Tensor& x, const Tensor& t) { return nn::smooth_l1_loss(x, t, {.beta = 0.3}); }},
      {"huber", [](const Tensor& x, const Tensor& t) { return nn::huber_loss(x, t, {.delta = 0.3}); }},
      {"bce", [](const Tensor& x, const Tensor& t) { return nn::binary_cross_entropy(x, t); }},
      {"logits", [](const Tensor& x, const Tensor& t) { return nn::binary_cross_entropy_with_logits(x, t); }},
      {"logits to",
       [](const Tensor& x, const Tensor&) { return nn::binary_cross_entropy_with_logits_to(x, 0.9); }},
      {"soft margin", [](const Tensor& x, const Tensor& t) { return nn::soft_margin_loss(x, t); }},
      {"kl", [](const Tensor& x, const Tensor& t) { return nn::kl_div(x, t); }},
      {"kl of logs", [](const Tensor& x, const Tensor& t) { return nn::kl_div(x, t, {.log_target = true}); }},
      {"poisson", [](const Tensor& x, const Tensor& t) { return nn::poisson_nll_loss(x, t); }},
      {"poisson of counts",
       [](const Tensor& x, const Tensor& t) { return nn::poisson_nll_loss(x, t, {.log_input = false}); }},
  };
  return all;
}

// Numbers between 0 and 1, valid for all losses.
Tensor numbers(const Shape& shape, DType dtype, double salt, Device device) {
  std::vector<double> v(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = 0.5 + 0.49 * std::sin(salt + double(i));
  return raw::to(raw::to(tensor(v, shape), dtype), device);
}

int64_t launches(const cuda::HostCallScope& calls, const std::string& op) {
  const auto all = calls.by_op();
  const auto found = all.find(op);
  return found == all.end() ? 0 : found->second.launches;
}

// The gradient of x, from a backward that begins with dy, or with the 1 of the backward itself.
std::vector<double> gradient(const Loss& loss, const Tensor& x, const Tensor& target, const Tensor& dy = {}) {
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = loss(x, target);
  if (dy.defined())
    gm.backward(y, dy);
  else
    gm.backward(y);
  const std::vector<double> got = x.grad().to_vector<double>();
  x.set_grad({});
  return got;
}

TEST(LossSlopes, HaveTheBitsOfALaunchOfTheirOwn) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const Shape& shape : {Shape{1}, Shape{7, 5}, Shape{4096}})
      for (const auto& [name, loss] : losses()) {
        const Tensor x = numbers(shape, dtype, 1, kCuda), t = numbers(shape, dtype, 2, kCuda);
        const Tensor one = scalar(1, {dtype, kCuda});
        std::vector<double> known, computed;
        {
          const cuda::HostCallScope calls;
          known = gradient(loss, x, t);
          EXPECT_EQ(launches(calls, "point_loss_backward"), 0) << name << calls.table();
        }
        {
          const cuda::HostCallScope calls;
          computed = gradient(loss, x, t, one);
          EXPECT_EQ(launches(calls, "point_loss_backward"), 1) << name << calls.table();
        }
        EXPECT_EQ(known, computed) << name << ' ' << describe(x);
      }
}

// The fused gradient also takes dense channels-last tensors.
TEST(LossSlopes, LieAsTheElements) {
  const auto [name, loss] = losses()[0];
  const Tensor x = raw::channels_last(numbers({2, 3, 4, 5}, DType::kF32, 1, kCuda));
  const Tensor t = raw::channels_last(numbers({2, 3, 4, 5}, DType::kF32, 2, kCuda));
  const cuda::HostCallScope calls;
  EXPECT_EQ(gradient(loss, x, t), gradient(loss, raw::to(x, kCPU), raw::to(t, kCPU)));
  EXPECT_EQ(launches(calls, "point_loss_backward"), 0) << calls.table();
}

// Not fused: many elements, gaps, or another layout or dtype than the target's.
TEST(LossSlopes, OfOtherOperandsAreComputedByTheBackward) {
  const auto [name, loss] = losses()[0];
  const auto run = [&, &mse = loss](const Tensor& x, const Tensor& t) {
    const cuda::HostCallScope calls;
    EXPECT_EQ(gradient(mse, x, t), gradient(mse, raw::to(x, kCPU), raw::to(t, kCPU))) << describe(x);
    EXPECT_EQ(launches(calls, "point_loss_backward"), 1) << describe(x) << calls.table();
  };
  run(numbers({4097}, DType::kF32, 1, kCuda), numbers({4097}, DType::kF32, 2, kCuda));
  const Tensor images = numbers({2, 3, 4, 5}, DType::kF32, 1, kCuda);
  run(images, raw::channels_last(images * 0.5));
  run(images, numbers({2, 3, 4, 5}, DType::kF64, 2, kCuda));
  run(raw::narrow(images, 3, 0, 4), numbers({2, 3, 4, 4}, DType::kF32, 2, kCuda));
}

// The 1 goes through sums to each of the losses, but not through a product.
TEST(LossSlopes, AreThoseOfEachTermOfASum) {
  const auto run = [](Device device) {
    const Tensor real = numbers({9, 1}, DType::kF32, 1, device),
                 fake = numbers({9, 1}, DType::kF32, 2, device),
                 scaled = numbers({9, 1}, DType::kF32, 3, device);
    GradManager gm;
    gm.attach({real, fake, scaled});
    auto recording = gm.record();
    gm.backward(nn::binary_cross_entropy_with_logits_to(real, 1) +
                nn::binary_cross_entropy_with_logits_to(fake, 0) + nn::mse_loss_to(scaled, 0) * 10.0);
    std::vector<std::vector<double>> all;
    for (const Tensor& x : {real, fake, scaled}) all.push_back(x.grad().to_vector<double>());
    return all;
  };
  const cuda::HostCallScope calls;
  EXPECT_EQ(run(kCuda), run(kCPU));
  EXPECT_EQ(launches(calls, "point_loss_backward"), 1) << calls.table();
}

// Two backwards of one loss get different gradient tensors.
TEST(LossSlopes, AreGivenAwayOnce) {
  const auto run = [](Device device) {
    const Tensor x = numbers({9}, DType::kF32, 1, device);
    GradManager outer, inner;
    outer.attach(x), inner.attach(x);
    Recording first = outer.record(), second = inner.record();
    const Tensor loss = nn::mse_loss_to(x, 0);
    first.backward(loss);  // the inner recording keeps the graph
    const Tensor grad = x.grad();
    x.set_grad({});
    second.backward(loss);
    EXPECT_EQ(grad.to_vector<double>(), x.grad().to_vector<double>());
    raw::fill_(grad, 7);
    return x.grad().to_vector<double>();
  };
  const cuda::HostCallScope calls;
  EXPECT_EQ(run(kCuda), run(kCPU));
  EXPECT_EQ(launches(calls, "point_loss_backward"), 1) << calls.table();
}

TEST(LossSlopes, AreDifferentiatedAgain) {
  for (const auto& [name, loss] : losses()) {
    const auto run = [&, &of = loss](Device device) {
      const Tensor x = numbers({6, 3}, DType::kF64, 1, device), t = numbers({6, 3}, DType::kF64, 2, device);
      GradManager outer, inner;
      outer.attach(x), inner.attach(x);
      auto watching = outer.record();
      {
        auto recording = inner.record();
        inner.backward(of(x * x, t));
      }
      const Tensor norm = sum(x.grad() * x.grad());
      x.set_grad({});
      outer.backward(norm);
      return x.grad().to_vector<double>();
    };
    const std::vector<double> got = run(kCuda), want = run(kCPU);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-12 * (1 + std::abs(want[i]))) << name << ", element " << i;
  }
}

// A gradient that a GradScaler multiplies does not begin with 1.
TEST(LossSlopes, OfScaledLossesAreScaled) {
  const auto& [name, loss] = losses()[2];
  const Tensor x = numbers({9}, DType::kF32, 1, kCuda);
  const std::vector<double> plain = gradient(loss, x, {});
  GradManager gm;
  gm.attach(x);
  optim::GradScaler scaler({.init_scale = 8});
  auto recording = gm.record();
  scaler.backward(gm, loss(x, {}));
  const std::vector<double> scaled = x.grad().to_vector<double>();
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], 8 * plain[i]) << i;
}

// A callback overwrites the initial gradient 1, which a later loss in the same backward receives.
TEST(LossSlopes, AreNotGivenForWhatIsNoLongerOne) {
  const auto run = [](Device device) {
    const Tensor x = numbers({}, DType::kF32, 1, device);
    GradManager gm;
    gm.attach(x);
    std::vector<double> all;
    for (const bool writes : {true, false}) {
      auto recording = gm.record();
      const Tensor between = x * 1.0;
      gm.attach(between, [&](const Tensor&, const Tensor& grad) {
        if (writes) raw::fill_(grad, 5);
        return grad;
      });
      gm.backward({between, nn::mse_loss_to(x, 0)});
      all.push_back(x.grad().to_vector<double>()[0]);
      x.set_grad({});
    }
    return all;
  };
  EXPECT_EQ(run(kCuda), run(kCPU));
}

TEST(LossSlopes, SeeElementsThatWereOverwritten) {
  const Tensor x = numbers({9}, DType::kF32, 1, kCuda);
  GradManager gm;
  gm.attach(x);
  auto recording = gm.record();
  const Tensor y = x * 2.0;
  const Tensor loss = nn::mse_loss_to(y, 0);
  raw::fill_(detach(y), 3);
  EXPECT_THROW(gm.backward(loss), StateError);
}

}  // namespace
}  // namespace gradus
