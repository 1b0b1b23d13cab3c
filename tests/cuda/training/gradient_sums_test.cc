// Gradients of leaves that several ops use, on the emulator: bits of the CPU, and added in one launch per
// dtype (add_all_) unless something needs a sum at once. Sums with gradients of
// earlier backwards are batched likewise.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};
using Tensors = std::vector<Tensor>;

// Element i is sin(salt + i).
Tensor numbers(const Shape& shape, DType dtype, double salt, Device device) {
  std::vector<double> v(static_cast<size_t>(shape.product()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(salt + double(i));
  return raw::to(raw::to(tensor(v, shape), dtype), device);
}

// Parameters of many dtypes and shapes, one of them channels-last.
Tensors parameters(Device device) {
  Tensors all = {numbers({4099}, DType::kF32, 1, device), numbers({3, 5}, DType::kF32, 2, device),
                 numbers({17}, DType::kF64, 3, device), numbers({8}, DType::kF16, 4, device),
                 raw::channels_last(numbers({2, 3, 4, 5}, DType::kF32, 5, device))};
  return all;
}

// Uses each parameter `uses` times. Terms of a gradient are elements times powers of 2, so only sums round.
Tensor loss_of(const Tensors& params, int uses) {
  Tensor loss;
  for (int use = 0; use < uses; ++use)
    for (const Tensor& p : params) {
      const Tensor term = to(sum(square(p * std::exp2(use))), DType::kF64);
      loss = loss.defined() ? loss + term : term;
    }
  return loss;
}

std::vector<std::vector<double>> gradients(const Tensors& params) {
  std::vector<std::vector<double>> all;
  for (const Tensor& p : params) all.push_back(p.grad().to_vector<double>());
  return all;
}

int64_t launches(const cuda::HostCallScope& calls, const std::string& op) {
  const auto all = calls.by_op();
  const auto found = all.find(op);
  return found == all.end() ? 0 : found->second.launches;
}

// Parameters on a device and on the CPU, with a manager each.
struct Pair {
  Tensors here = parameters(kCPU), there = parameters(kCuda);
  GradManager gm_here, gm_there;
  void attach() { gm_here.attach(here), gm_there.attach(there); }
  void backward(int uses) {
    {
      auto recording = gm_here.record();
      gm_here.backward(loss_of(here, uses));
    }
    auto recording = gm_there.record();
    gm_there.backward(loss_of(there, uses));
  }
};

TEST(GradientSums, AreMadeTogether) {
  for (const int uses : {1, 2, 3, 5}) {
    Pair p;
    p.attach();
    const cuda::HostCallScope calls;
    p.backward(uses);
    EXPECT_EQ(gradients(p.there), gradients(p.here)) << uses;
    // One launch per dtype for each further use: a sum of three terms takes two launches.
    EXPECT_EQ(launches(calls, "add_all_"), 3 * (uses - 1)) << calls.table();
  }
}

TEST(GradientSums, WithThoseOfEarlierBackwardsAreMadeTogether) {
  Pair p;
  p.attach();
  p.backward(1);
  const auto first = gradients(p.there);
  const cuda::HostCallScope calls;
  p.backward(2);
  EXPECT_EQ(gradients(p.there), gradients(p.here));
  EXPECT_NE(gradients(p.there), first);
  EXPECT_EQ(launches(calls, "add_all_"), 6) << calls.table();
}

// A callback sees the sum as soon as it is complete: most of the backward comes afterward.
TEST(GradientSums, AreThereForCallbacks) {
  Pair p;
  const cuda::HostCallScope calls;
  std::vector<std::vector<double>> seen;
  int64_t launches_before = 0;
  const auto see = [&](const Tensor&, const Tensor& grad) {
    launches_before = calls.total().launches;
    seen.push_back(grad.to_vector<double>());
    return grad * 2.0;
  };
  p.gm_here.attach(p.here[4], see), p.gm_there.attach(p.there[4], see);
  p.attach();
  p.backward(2);
  EXPECT_EQ(gradients(p.there), gradients(p.here));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(launches(calls, "add_all_"), 3);
  EXPECT_GT(calls.total().launches, launches_before + 8);
}

// A leaf that was computed passes its gradient on: the sum is needed at once.
TEST(GradientSums, ArePassedOn) {
  Pair p;
  const auto run = [](GradManager& gm, const Tensors& params) {
    gm.attach(params);
    auto recording = gm.record();
    const Tensors between = {params[0] * 3.0};
    gm.attach(between);
    gm.backward(loss_of(between, 2) + loss_of(params, 2));
    return gradients(between);
  };
  EXPECT_EQ(run(p.gm_there, p.there), run(p.gm_here, p.here));
  EXPECT_EQ(gradients(p.there), gradients(p.here));
}

// An outer recording differentiates the sums.
TEST(GradientSums, AreDifferentiatedAgain) {
  Pair p;
  const auto run = [](GradManager& gm, const Tensors& params) {
    GradManager inner;
    gm.attach(params), inner.attach(params);
    auto outer = gm.record();
    {
      auto recording = inner.record();
      inner.backward(loss_of(params, 2));
    }
    Tensor norm;
    for (const Tensor& x : params) {
      const Tensor one = to(sum(x.grad() * x.grad()), DType::kF64);
      norm = norm.defined() ? norm + one : one;
      x.set_grad({});
    }
    gm.backward(norm);
  };
  run(p.gm_here, p.here), run(p.gm_there, p.there);
  EXPECT_EQ(gradients(p.there), gradients(p.here));
}

// In two parts: the input's gradient is there after the first.
TEST(GradientSums, OfInputsAreThereAfterTheirPart) {
  Pair p;
  const auto run = [](GradManager& gm, const Tensors& params) {
    gm.attach(params);
    auto recording = gm.record();
    recording.backward_inputs({params[1]}, loss_of(params, 2));
    const std::vector<double> grad = params[1].grad().to_vector<double>();
    recording.backward_weights();
    return grad;
  };
  EXPECT_EQ(run(p.gm_there, p.there), run(p.gm_here, p.here));
  EXPECT_EQ(gradients(p.there), gradients(p.here));
}

// Deferred terms hold at most 32 MiB (kMaxPendingBytes in engine.cc): a term of 33 MiB is added at once.
TEST(GradientSums, OfLargeGradientsDoNotWait) {
  const Tensor large = zeros({(int64_t{33} << 20) / 8}, {DType::kF64, kCuda});
  const Tensor small = zeros({3}, {DType::kF64, kCuda});
  GradManager gm;
  gm.attach({large, small});
  auto recording = gm.record();
  Tensor loss = sum(small * 2.0);
  for (const Tensor& p : {large, large, small}) loss = loss + sum(p * 3.0);
  const cuda::HostCallScope calls;
  gm.backward(loss);
  EXPECT_EQ(launches(calls, "add_all_"), 2);
  EXPECT_EQ(raw::narrow(large.grad(), 0, 7, 1).item<double>(), 6);
  EXPECT_EQ(small.grad().to_vector<double>(), std::vector<double>(3, 5));
}

// A deferred view would keep the whole large gradient alive.
TEST(GradientSums, OfViewsOfLargeGradientsDoNotWait) {
  const Tensor small = zeros({3}, {DType::kF64, kCuda}), other = zeros({3}, {DType::kF64, kCuda});
  const Tensor large = zeros({(int64_t{33} << 20) / 8}, {DType::kF64, kCuda});
  GradManager gm;
  gm.attach({small, other});
  auto recording = gm.record();
  Tensor loss = sum(other * 2.0) + sum(other * 3.0);  // the last ones of the backward
  loss = loss + sum(cat({small, large}, 0) * 2.0);
  loss = loss + sum(small * 3.0);
  const cuda::HostCallScope calls;
  gm.backward(loss);
  EXPECT_EQ(launches(calls, "add_all_"), 2);
  EXPECT_EQ(small.grad().to_vector<double>(), std::vector<double>(3, 5));
  EXPECT_EQ(other.grad().to_vector<double>(), std::vector<double>(3, 5));
}

}  // namespace
}  // namespace gradus
