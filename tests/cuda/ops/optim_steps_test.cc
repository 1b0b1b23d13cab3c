// Optimizers on cuda:0 against the CPU: all dtypes, sizes around those of chunks and tables. Element-wise
// steps are bit-equal; steps that use norms (LARS, LAMB) sum in another order and have a tolerance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/optim/optim.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/device_allocator.h"
#include "gradus/tests/optim/optimizers.h"
#include "gradus/tests/support/error.h"
#include "gradus/tools/cuda_emulator/counters.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus::optim {
namespace {

const Device kCuda = Device::parse("cuda:0");
using Tensors = std::vector<Tensor>;

// Numbers between -1 and 1 without a pattern.
Tensor numbers(const Shape& shape, DType dtype, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(shape.product()));
  for (float& x : v)
    x = static_cast<float>(static_cast<int32_t>(seed = seed * 1664525u + 1013904223u)) * 0x1p-31f;
  const Tensor flat = tensor(v, {shape.product()});
  return raw::to(view_as_strided(flat, shape, row_major_strides(shape), 0), dtype);
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
double largest(const Tensor& x) {
  double most = 0;
  for (const double v : values(x)) most = std::max(most, std::abs(v));
  return most;
}

// An optimizer on the CPU (`here`) and one on cuda:0 (`device`), with the same parameters.
struct Pair {
  Pair(const OptimizerCase& named, const Tensors& params) : by_norms(named.by_norms) {
    Tensors there;
    for (const Tensor& p : params) there.push_back(raw::to(p, kCuda));
    here = named.make(params), device = named.make(there);
  }
  void set_grad(size_t i, const Tensor& grad) {
    here->parameters()[i].set_grad(grad);
    device->parameters()[i].set_grad(raw::to(grad, kCuda));
  }
  void step(uint32_t t) {
    for (size_t i = 0; i < here->parameters().size(); ++i) {
      const Tensor p = here->parameters()[i];
      set_grad(i, numbers(p.shape(), p.dtype(), 1000 * t + static_cast<uint32_t>(i)));
    }
    here->step(), device->step();
  }
  // A rate from norms may differ by one unit in the last place, in each of at most three steps, and so may
  // what it adds to a momentum and a parameter. A 16-bit parameter may be rounded to its neighbor.
  double allowed(const Tensor& param, const Tensor& x) const {
    if (!by_norms) return 0;
    const DType t = x.dtype();
    const double unit = t == DType::kF64    ? 0x1p-52 * 1e4  // of sums of so many elements
                        : t == DType::kF32  ? 0x1p-23
                        : t == DType::kBF16 ? 0x1p-8
                                            : 0x1p-11;
    return 9 * unit * std::max(largest(x), largest(param));
  }
  void expect_same(const std::string& where) const {
    const auto compare = [&](const Tensor& want, const Tensor& got, const Tensor& param,
                             const std::string& what) {
      ASSERT_EQ(got.device(), kCuda) << what;
      ASSERT_EQ(got.dtype(), want.dtype()) << what;
      const std::vector<double> a = values(want), b = values(got);
      ASSERT_EQ(a.size(), b.size());
      const double off = allowed(param, want);
      for (size_t e = 0; e < a.size(); ++e)
        ASSERT_LE(std::abs(a[e] - b[e]), off)
            << where << what << " " << name_of(want.dtype()) << ", element " << e << " of " << a.size()
            << ": " << b[e] << ", on the CPU " << a[e];
    };
    for (size_t i = 0; i < here->parameters().size(); ++i)
      compare(here->parameters()[i], device->parameters()[i], here->parameters()[i],
              " parameter " + std::to_string(i));
    const State want = here->state_dict(), got = device->state_dict();
    ASSERT_EQ(want.tensors.size(), got.tensors.size());
    for (size_t i = 0; i < want.tensors.size(); ++i)
      compare(want.tensors[i].second, got.tensors[i].second, want.tensors[i].second,
              " " + want.tensors[i].first);
    EXPECT_EQ(want.numbers, got.numbers);
  }

  std::unique_ptr<Optimizer> here, device;
  bool by_norms;
};

class CudaOptimizer : public testing::TestWithParam<size_t> {
 protected:
  const OptimizerCase& named() const { return all_optimizers()[GetParam()]; }
};

TEST_P(CudaOptimizer, StepsAsTheCpuDoes) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    Tensors params;
    for (const Shape& shape : {Shape{1}, {0}, {3}, {4095}, {2, 3, 5}, {4097}, {8200}, {}})
      params.push_back(numbers(shape, t, static_cast<uint32_t>(params.size()) + 7));
    Pair pair(named(), params);
    for (uint32_t step = 1; step <= 3; ++step) pair.step(step);
    pair.expect_same(named().name);
    if (HasFatalFailure()) return;
  }
}

// Parameters with different step counts; layouts other than row-major; gradients at any offset of a bucket.
TEST_P(CudaOptimizer, StepsWhatLiesAndBeginsOtherwise) {
  const Tensor dense = numbers({2, 3, 4, 5}, DType::kF32, 5), last = raw::channels_last(dense);
  Pair pair(named(), {dense, last, numbers({50}, DType::kF32, 6), numbers({9}, DType::kF32, 8)});
  for (uint32_t t = 1; t <= 4; ++t) {
    const Tensor bucket = numbers({300}, DType::kF32, t), there = raw::to(bucket, kCuda);
    for (size_t i = 0, from = 1; i < 4; ++i) {
      const Tensor p = pair.here->parameters()[i];
      const bool skips = t == 2 && i % 2 == 1;
      const auto part = [&](const Tensor& x) {
        return view_as_strided(x, p.shape(), row_major_strides(p.shape()), static_cast<int64_t>(from));
      };
      p.set_grad(skips ? Tensor() : part(bucket));
      pair.device->parameters()[i].set_grad(skips ? Tensor() : part(there));
      from += static_cast<size_t>(p.numel());
    }
    pair.here->step(), pair.device->step();
  }
  pair.expect_same(named().name);
}

TEST_P(CudaOptimizer, StepsManyTensorsInFewLaunches) {
  Tensors params;
  for (uint32_t i = 0; i < 170; ++i) params.push_back(numbers({1 + i % 5}, DType::kF32, i));
  Pair pair(named(), params);
  pair.step(1);
  for (uint32_t seed = 2; seed <= 4; ++seed) {
    cuda::emulated::set_seed(seed);
    pair.step(seed);
  }
  pair.expect_same(named().name);
  pair.device->step();
  synchronize(kCuda);
  cuda::emulated::CounterScope counting;
  pair.device->step();
  synchronize(kCuda);
  int64_t launches = 0;
  for (const auto& l : counting.take_launches()) launches += l.launches;
  // A table has 73 tensors with three states.
  EXPECT_LE(launches, named().by_norms ? 6 : 3);
}

// A wait for the stream would run all of its queued tasks; without one only some have run.
TEST_P(CudaOptimizer, DoesNotWait) {
  constexpr int kTasks = 100;
  const Tensor p = raw::to(numbers({5000}, DType::kF32, 1), kCuda);
  const auto opt = named().make({p});
  p.set_grad(raw::to(numbers({5000}, DType::kF32, 2), kCuda));
  Tensor found;
  int ran = 0;
  for (int step = 0; step < 3; ++step) {
    synchronize(kCuda);
    ran = 0;
    for (int i = 0; i < kTasks; ++i) current_stream(kCuda).enqueue([&] { ++ran; });
    clip_grad_norm_({p}, 1);
    clip_grad_value_({p}, 0.5);
    found = raw::unscale_({p.grad()}, 0.5);
    opt->step();
  }
  EXPECT_LT(ran, kTasks);
  EXPECT_EQ(found.item<float>(), 0);
  EXPECT_EQ(ran, kTasks);
}

INSTANTIATE_FOR_ALL_OPTIMIZERS(CudaOptimizer);

// Adafactor and Muon, whose steps are raw ops. Sums in another order make the results of f32 and 16-bit floats
// differ; Muon computes in bf16, in f64 for f64.
TEST(CudaOptimizersByOps, StepAsTheCpuDoes) {
  const std::vector<std::function<std::unique_ptr<Optimizer>(const Tensors&)>> makes = {
      [](const Tensors& p) { return std::make_unique<Adafactor>(p, AdafactorOptions{.weight_decay = 0.1}); },
      [](const Tensors& p) { return std::make_unique<Muon>(p, MuonOptions{.lr = 0.01}); }};
  for (const auto& make : makes)
    for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      const double tolerance = t == DType::kF64 ? 1e-11 : t == DType::kF32 ? 1e-3 : 0.02;
      Tensors here, there;
      for (const Shape& shape : {Shape{4, 6}, {60, 40}, {0, 3}, {1, 5}})
        here.push_back(numbers(shape, t, static_cast<uint32_t>(here.size()) + 3));
      for (const Tensor& p : here) there.push_back(raw::to(p, kCuda));
      const auto a = make(here), b = make(there);
      for (uint32_t step = 1; step <= 3; ++step) {
        cuda::emulated::set_seed(step);
        for (size_t i = 0; i < here.size(); ++i) {
          here[i].set_grad(numbers(here[i].shape(), t, 100 * step + static_cast<uint32_t>(i)));
          there[i].set_grad(raw::to(here[i].grad(), kCuda));
        }
        a->step(), b->step();
      }
      for (size_t i = 0; i < here.size(); ++i) {
        const std::vector<double> x = values(here[i]), y = values(there[i]);
        ASSERT_EQ(x.size(), y.size());
        for (size_t e = 0; e < x.size(); ++e)
          ASSERT_NEAR(x[e], y[e], tolerance) << name_of(t) << ", parameter " << i << ", element " << e;
      }
      EXPECT_EQ(a->state_dict().numbers, b->state_dict().numbers);
      EXPECT_EQ(b->state_dict().tensors.front().second.device(), kCuda);
      EXPECT_THROW(b->make_capturable(), ValueError);
    }
}

// Gradients of embeddings are dense on GPUs.
TEST(CudaSparseAdam, IsRefused) {
  const Tensor p = raw::to(numbers({4, 2}, DType::kF32, 1), kCuda);
  SparseAdam opt({p});
  p.set_grad(raw::to(numbers({4, 2}, DType::kF32, 2), kCuda));
  EXPECT_ERROR(ValueError, opt.step(), "[SparseAdam]", "f32[4,2] cuda:0");
}

TEST(CudaGradients, AreAsOnTheCpu) {
  for (const double p : {1., 2., 2.5, double(INFINITY)}) {
    Tensors here = {
        numbers({4097}, DType::kF32, 1), numbers({0}, DType::kF64, 2),
        numbers({33}, DType::kBF16, 3),  numbers({5000}, DType::kF64, 4),
        numbers({7}, DType::kF16, 5),    raw::channels_last(numbers({2, 3, 4, 5}, DType::kF32, 6))};
    Tensors there;
    for (const Tensor& x : here) there.push_back(raw::to(x, kCuda));
    there[0] = raw::narrow(raw::to(numbers({4098}, DType::kF32, 9), kCuda), 0, 1, 4097);  // misaligned
    raw::copy_(there[0], here[0]);
    const auto expect_same = [&](const char* what) {
      for (size_t i = 0; i < here.size(); ++i)
        EXPECT_EQ(values(there[i]), values(here[i])) << what << " " << i;
    };
    const Tensor want = raw::norm_of(here, p), got = raw::norm_of(there, p);
    EXPECT_EQ(got.device(), kCuda);
    // f64 sums of 10,000 terms in another order, rounded to f32.
    EXPECT_NEAR(got.item<double>(), want.item<double>(), want.item<double>() * 0x1p-23);
    const Tensor norm = raw::to(want, kCuda);
    for (const double most : {1e6, 1., 0.})
      raw::clip_by_norm_(here, want, most), raw::clip_by_norm_(there, norm, most),
          expect_same("clip_by_norm_");
  }
}

// Pairs of equal layout are added in one launch; others one by one.
TEST(CudaGradients, AreAdded) {
  Tensors here = {numbers({4097}, DType::kF32, 1),
                  numbers({3}, DType::kF64, 2),
                  numbers({7}, DType::kF16, 3),
                  numbers({0}, DType::kF32, 4),
                  raw::channels_last(numbers({2, 3, 4, 5}, DType::kBF16, 5)),
                  numbers({2, 3, 4, 5}, DType::kF32, 6),
                  numbers({2, 5}, DType::kF32, 7)};
  Tensors terms = {numbers({4097}, DType::kF32, 11),
                   numbers({3}, DType::kF64, 12),
                   numbers({7}, DType::kF16, 13),
                   numbers({0}, DType::kF32, 14),
                   raw::channels_last(numbers({2, 3, 4, 5}, DType::kBF16, 15)),
                   raw::channels_last(numbers({2, 3, 4, 5}, DType::kF32, 16)),
                   numbers({5}, DType::kF32, 17)};
  Tensors there, terms_there, one_by_one;
  for (size_t i = 0; i < here.size(); ++i) {
    there.push_back(raw::to(here[i], kCuda)), terms_there.push_back(raw::to(terms[i], kCuda));
    one_by_one.push_back(raw::clone(here[i]));
    raw::add_(one_by_one[i], terms[i]);
  }
  const uint32_t version = there[0].storage()->version();
  raw::add_all_(here, terms), raw::add_all_(there, terms_there);
  EXPECT_NE(there[0].storage()->version(), version);
  for (size_t i = 0; i < here.size(); ++i) {
    EXPECT_EQ(values(here[i]), values(one_by_one[i])) << i;
    EXPECT_EQ(values(there[i]), values(one_by_one[i])) << i;
    EXPECT_EQ(values(terms_there[i]), values(terms[i])) << i;
  }
  raw::add_all_({}, {});
}

TEST(CudaGradients, ValuesAreClippedAndDivided) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    Tensors here = {numbers({4097}, t, 1), numbers({3}, t, 2)}, there;
    for (const Tensor& x : here) there.push_back(raw::to(x, kCuda));
    raw::clip_by_value_(here, 0.3), raw::clip_by_value_(there, 0.3);
    EXPECT_EQ(raw::unscale_(here, 0.7).item<float>(), 0);
    EXPECT_EQ(raw::unscale_(there, 0.7).item<float>(), 0);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(values(there[i]), values(here[i])) << name_of(t);
    for (const double bad : {double(NAN), double(INFINITY), -double(INFINITY)}) {
      raw::fill_(raw::narrow(there[1], 0, 2, 1), bad);
      EXPECT_EQ(raw::unscale_(there, 0.7).item<float>(), 1) << name_of(t) << " " << bad;
    }
  }
  const Tensor none = raw::to(numbers({0}, DType::kF32, 1), kCuda);
  EXPECT_EQ(raw::unscale_({none}, 2).item<float>(), 0);
  EXPECT_EQ(raw::norm_of({none}, 2).item<float>(), 0);
}

TEST(CudaAverages, AreAsOnTheCpu) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
    for (const double weight : {0.1, 1.}) {
      const Tensor here = numbers({4100}, t, 1), newest = numbers({4100}, t, 2), there = raw::to(here, kCuda);
      raw::average_step_({{.param = here, .grad = newest, .state = {}}}, weight);
      raw::average_step_({{.param = there, .grad = raw::to(newest, kCuda), .state = {}}}, weight);
      EXPECT_EQ(values(there), values(here)) << name_of(t) << " " << weight;
    }
}

}  // namespace
}  // namespace gradus::optim
