// Device features that training uses, tested on a GPU (tests/cuda/device/build.sh) and on the emulator:
// errors that kernels report, random numbers of captured steps, learning rates on the device, measured and
// stored cuDNN plans, its attention, copies, streams, loader batches, kernel times. The CPU's results are the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/data/dataloader.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/cuda/cudnn/conv_plans.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/images/conv.h"
#include "gradus/tensor/ops/linalg/matmul.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/profile/profiler.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};
constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

// The text of the error that f throws; "" for none.
std::string thrown(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

// The kernel reports to pinned memory and the loss is NaN. The program can go on.
TEST(ValueErrors, AreTheCpus) {
  const auto loss_of = [](Device d) {
    const Tensor x = raw::to(reshape(linspace(-1, 1, 30), {6, 5}), d);
    return cross_entropy(x, raw::to(tensor(std::vector<int64_t>{1, 1, 1, 7, 1, 9}, {6}), d));
  };
  const auto weighted = [](Device d) {
    multinomial(raw::to(tensor(std::vector<double>{1, -2, 3}, {3}), d), 2).to_vector<int64_t>();
  };
  const auto chances = [](Device d) {
    bernoulli(raw::to(tensor({0.5f, 1.25f, -3.f}), d)).to_vector<float>();
  };
  const std::string want = thrown([&] { loss_of(kCPU); });
  EXPECT_NE(want, "");
  for (int i = 0; i < 3; ++i) {
    const Tensor loss = loss_of(kCuda);
    EXPECT_EQ(thrown([&] { loss.item<float>(); }), want);
    EXPECT_TRUE(std::isnan(loss.item<float>()));
  }
  EXPECT_EQ(thrown([&] { weighted(kCuda); }), thrown([&] { weighted(kCPU); }));
  EXPECT_EQ(thrown([&] { chances(kCuda); }), thrown([&] { chances(kCPU); }));
  const Stream side = Stream::create(kCuda);
  {
    const StreamScope scope(side);
    loss_of(kCuda);
  }
  Stream::of(kCuda).wait(Event::record(side));
  EXPECT_EQ(thrown([] { synchronize(kCuda); }), want) << "of a stream that was waited for";
  EXPECT_EQ(thrown([] { synchronize(kCuda); }), "");
}

// Records the calls of one kernel slot; repeat() calls again with the same arguments, as a captured step
// does.
template <auto& slot> class Calls;
template <class... Args, KernelSlot<void(const Tensor&, Args...)>& slot> class Calls<slot> {
 public:
  Calls() { kernel_ = std::exchange(slot.cuda, &run), calls_.clear(); }
  ~Calls() { slot.cuda = kernel_; }
  void repeat() const {
    for (const auto& call : calls_) call();
  }

 private:
  static void run(const Tensor& out, Args... args) {
    calls_.push_back([out, ... copies = std::decay_t<Args>(args)] { kernel_(out, copies...); });
    kernel_(out, args...);
  }
  static inline typename KernelSlot<void(const Tensor&, Args...)>::Function kernel_ = nullptr;
  static inline std::vector<std::function<void()>> calls_;
};

TEST(DrawsOfAStep, AreTheNextOnesEachTimeItRuns) {
  const auto draw = [](Device d) {
    const Tensor x = rand({1003}, {.device = d}), ones_of_d = ones({1003}, {.device = d});
    const Tensor y = randn({2, 5, 6}, {.device = d});
    const raw::DropoutResult dropped = raw::dropout(ones_of_d, 0.4, 1.25);
    return std::vector<Tensor>{
        x, y, dropped.y, dropped.mask, randint(1000, {77}, {DType::kI64, d}), rand({5}, {DType::kF64, d})};
  };
  const auto all = [](const std::vector<Tensor>& drawn) {
    std::vector<double> numbers;
    for (const Tensor& x : drawn)
      for (const double v : values(x)) numbers.push_back(v);
    return numbers;
  };
  manual_seed(0xf23456789abcdef0);
  const auto first = all(draw(kCPU)), second = all(draw(kCPU));
  manual_seed(0xf23456789abcdef0);
  DeviceDraws draws(kCuda);
  const Calls<raw::uniform_kernel> uniform;
  const Calls<raw::normal_kernel> normal;
  const Calls<raw::dropout_kernel> dropout;
  const Calls<raw::randint_kernel> integers;
  std::vector<Tensor> drawn;
  {
    const DeviceDraws::Scope scope(draws);
    drawn = draw(kCuda);
  }
  EXPECT_EQ(all(drawn), first);
  draws.repeat();
  uniform.repeat(), normal.repeat(), dropout.repeat(), integers.repeat();
  EXPECT_EQ(all(drawn), second);
  manual_seed(7);
  draws.repeat();
  uniform.repeat(), normal.repeat(), dropout.repeat(), integers.repeat();
  manual_seed(7);
  EXPECT_EQ(all(drawn), all(draw(kCPU)));
}

// Normal steps against make_capturable(), which keeps the rate and step counts on the device. On a GPU pow()
// in Adam's rule is CUDA's and differs from the host's in the last places of f64, so an f32 element may move
// to its neighbor in each of the 6 steps.
template <class O, class Options> void expect_same_steps(Options options) {
  const Tensor start = linspace(-2, 2, 5000);
  const auto train = [&](bool capturable) {
    const Tensor p = raw::clone(raw::to(start, kCuda));
    O opt({p}, options);
    if (capturable) opt.make_capturable();
    for (int t = 1; t <= 6; ++t) {
      if (t == 4) opt.set_lr(0.01);
      p.set_grad(p * (0.5 / t));
      opt.step().clear_grad();
    }
    return values(p);
  };
  const auto want = train(false), got = train(true), before = values(start);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 6 * 0x1p-23 * std::max(1., std::abs(want[i]))) << i;
    ASSERT_NE(got[i], before[i]) << i;
  }
}

TEST(CapturableSteps, AreThoseOfOthers) {
  expect_same_steps<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  expect_same_steps<optim::Adam>(optim::AdamOptions{.lr = 0.1});
}

// -1, 0 and 1, in an order without a pattern: sums of up to 256 products are exact in each dtype.
Tensor integers(const Shape& shape, DType dtype, uint32_t seed) {
  std::vector<float> v(static_cast<size_t>(shape.product()));
  for (float& x : v)
    x = static_cast<float>(static_cast<int>((seed = seed * 1664525u + 1013904223u) >> 24) % 3 - 1);
  return raw::to(reshape(tensor(v, {shape.product()}), shape), dtype);
}

// The results of a convolution in three directions, and of one with bias and relu, in each dtype.
std::vector<std::vector<double>> convolve(Device d) {
  const raw::ConvGeometry g(Conv2dFuncOptions{.stride = {2, 1}, .padding = 1});
  const Shape x_shape{2, 5, 7, 6}, w_shape{4, 5, 3, 3};
  std::vector<std::vector<double>> all;
  for (const DType t : kFloats) {
    const Tensor x = raw::to(integers(x_shape, t, 1), d), w = raw::to(integers(w_shape, t, 2), d),
                 bias = raw::to(integers({4}, t, 3), d), dy = raw::to(integers({2, 4, 4, 6}, t, 4), d);
    all.push_back(values(raw::conv("conv2d", x, w, {}, g)));
    all.push_back(values(raw::conv_relu("conv2d", x, w, bias, g)));
    all.push_back(values(raw::conv_input_grad("conv2d", dy, w, {}, x_shape, g)));
    all.push_back(values(raw::conv_weight_grad("conv2d", dy, x, w_shape, false, g).first));
  }
  return all;
}

TEST(PlansOfConvolutions, ThatAreMeasuredAndStoredGiveTheSame) {
  const auto want = convolve(kCPU);
  EXPECT_EQ(convolve(kCuda), want) << "by the heuristic";
  cuda::clear_plans();
  cuda::set_cudnn_benchmark(true);
  EXPECT_EQ(convolve(kCuda), want) << "measured";
  cuda::set_cudnn_benchmark(false);
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "gradus_plans.txt";
  const int64_t stored = cuda::save_plans(path);
  EXPECT_GE(stored, 4 * 4);
  cuda::clear_plans();
  EXPECT_EQ(cuda::load_plans(path), stored);
  std::filesystem::remove(path);
  EXPECT_EQ(convolve(kCuda), want) << "by what was stored";
}

// NaN stays where the CPU has it, and all else is the same. Returns how many NaN the CPU has.
int64_t expect_nan_kept(const std::vector<double>& got, const std::vector<double>& want,
                        const std::string& what) {
  EXPECT_EQ(got.size(), want.size()) << what;
  if (got.size() != want.size()) return 0;
  int64_t lost = 0, wrong = 0, kept = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]))
      std::isnan(got[i]) ? ++kept : ++lost;
    else
      wrong += got[i] != want[i];
  }
  EXPECT_EQ(lost, 0) << what << ": of " << lost + kept << " NaN";
  EXPECT_EQ(wrong, 0) << what;
  return lost + kept;
}
// Small integers in f32, and one NaN.
Tensor with_nan(const Shape& shape) {
  const Tensor x = integers(shape, DType::kF32, 1);
  raw::fill_(view_as_strided(x, {1}, {1}, 37), std::numeric_limits<double>::quiet_NaN());
  return x;
}

// Relu in cuDNN's graph.
TEST(PlansOfConvolutions, WithReluKeepNaN) {
  const raw::ConvGeometry g(Conv2dFuncOptions{});
  for (const DType t : kFloats) {
    const auto compute = [&](Device d) {
      const Tensor x = raw::to(raw::to(with_nan({2, 3, 6, 5}), t), d);
      const Tensor w = raw::to(integers({4, 3, 3, 3}, t, 2), d), bias = raw::to(integers({4}, t, 3), d);
      return values(raw::conv_relu("conv2d", x, w, bias, g));
    };
    EXPECT_GT(expect_nan_kept(compute(kCuda), compute(kCPU), std::string(name_of(t))), 0)
        << "the test would not notice";
  }
}

// Relu in cuBLASLt's epilogue, with and without a bias.
TEST(Products, WithReluKeepNaN) {
  for (const DType t : kFloats)
    for (const bool with_bias : {false, true}) {
      const auto compute = [&](Device d) {
        const Tensor x = raw::to(raw::to(with_nan({5, 16}), t), d);
        const Tensor w = raw::to(integers({8, 16}, t, 2), d), bias = raw::to(integers({8}, t, 3), d);
        return values(linear_relu(x, w, with_bias ? bias : Tensor()));
      };
      const std::string what = std::string(name_of(t)) + (with_bias ? " with a bias" : "");
      EXPECT_EQ(expect_nan_kept(compute(kCuda), compute(kCPU), what), 8) << "the test would not notice";
    }
}

// The same attention by cuDNN, and by our own kernels, which sum the same products in f32.
TEST(Attention, ByCudnnIsNearOurs) {
  // Heads in the rows of [1,tokens,2 * 32] or [2,tokens,64].
  const auto gradients = [](DType dtype, bool causal, int64_t heads, int64_t tokens) {
    manual_seed(1);
    const auto random = [&] {
      const Tensor rows = randn({3 - heads, tokens, 64}, {dtype, kCuda});
      return transpose(reshape(rows, {3 - heads, tokens, heads, 64 / heads}), 1, 2);
    };
    return autograd::grad(
        [&](const std::vector<Tensor>& t) {
          return scaled_dot_product_attention(t[0], t[1], t[2], {.causal = causal});
        },
        {random(), random(), random()}, random());
  };
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const bool causal : {false, true}) {
      for (const auto& [heads, tokens] : {std::pair(1, 256), {2, 128}}) {
        const cuda::HostCallScope calls;
        const std::vector<Tensor> given = gradients(dtype, causal, heads, tokens);
        EXPECT_EQ(calls.total().library_calls, 2) << "cuDNN has no plan";
        Context::current().deterministic = true;
        const std::vector<Tensor> ours = gradients(dtype, causal, heads, tokens);
        Context::current().deterministic = false;
        for (size_t i = 0; i < 3; ++i) {
          const auto got = values(given[i]), want = values(ours[i]);
          double error = 0, size = 0;
          for (size_t k = 0; k < want.size(); ++k)
            error += (got[k] - want[k]) * (got[k] - want[k]), size += want[k] * want[k];
          // y, the weights and the result are rounded.
          EXPECT_LT(std::sqrt(error / size), dtype == DType::kBF16 ? 3 * 0x1p-8 : 3 * 0x1p-11)
              << name_of(dtype) << ", causal " << causal << ", " << tokens << " tokens, gradient " << i;
        }
      }
    }
  }
}

// From and to the host in layouts and dtypes; many small ones, and one that exceeds a pinned block.
TEST(Copies, Arrive) {
  const Tensor x = reshape(arange(2 * 3 * 4 * 5, {.dtype = DType::kF64}), {2, 3, 4, 5});
  for (const DType t :
       {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kU8}) {
    const Tensor there = raw::to(raw::channels_last(raw::to(x, t)), kCuda);
    EXPECT_TRUE(there.is_channels_last());
    EXPECT_EQ(values(there), values(x)) << name_of(t);
    EXPECT_EQ(values(raw::contiguous(raw::permute(there, {3, 1, 0, 2}))),
              values(raw::permute(x, {3, 1, 0, 2})));
  }
  std::vector<Tensor> many;
  for (int i = 0; i < 200; ++i) many.push_back(raw::to(full({1000}, i), kCuda));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(values(many[size_t(i)]), std::vector<double>(1000, i)) << i;
  const Tensor large = arange((int64_t(70) << 20) / 4, {.dtype = DType::kI32});
  const Tensor back = raw::to(raw::clone(raw::to(large, kCuda)), kCPU);
  EXPECT_EQ(std::memcmp(back.raw_ptr(), large.raw_ptr(), static_cast<size_t>(large.nbytes())), 0);
}

TEST(Streams, RunInTheOrderOfEventsAndTasks) {
  const Stream side = Stream::create(kCuda);
  const Tensor x = zeros({1 << 16}, {.device = kCuda});
  for (int i = 1; i <= 20; ++i) {
    raw::fill_(x, i);
    side.wait(Event::record(Stream::of(kCuda)));
    Tensor y;
    {
      const StreamScope scope(side);
      y = x * 2.0;
    }
    Stream::of(kCuda).wait(Event::record(side));
    raw::fill_(x, -1);
    EXPECT_EQ(view_as_strided(y, {}, {}, (1 << 16) - 1).item<float>(), 2 * i);
  }
  std::vector<int> order;
  for (int i = 0; i < 20; ++i) side.enqueue([&order, i] { order.push_back(i); });
  side.synchronize();
  ASSERT_EQ(order.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[size_t(i)], i);
}

// Sample i is a thousand times the number i.
struct Numbers : data::Dataset {
  std::string name() const override { return "Numbers"; }
  int64_t size() const override { return 203; }
  data::Sample get(int64_t i) const override {
    return {full({1000}, double(i)), scalar(double(i), {.dtype = DType::kI64})};
  }
};

TEST(Batches, ComeToTheDevice) {
  const Numbers numbers;
  for (const int workers : {0, 2}) {
    data::DataLoader loader(
        numbers, {.batch_size = 8, .shuffle = true, .num_workers = workers, .seed = 3, .device = kCuda});
    std::vector<Tensor> used, targets;
    std::vector<std::vector<int64_t>> indices;
    for (const data::Batch& b : loader) {
      used.push_back(b.input * 2.0);
      targets.push_back(raw::clone(b.target));
      indices.push_back(b.indices);
    }
    ASSERT_EQ(used.size(), 26u);
    for (size_t n = 0; n < used.size(); ++n) {
      EXPECT_EQ(targets[n].to_vector<int64_t>(), indices[n]);
      const std::vector<float> got = used[n].to_vector<float>();
      for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 2.f * float(indices[n][i / 1000])) << n;
    }
  }
}

TEST(ProfilerOnCuda, KernelsHaveTimes) {
  const Tensor x = ones({256, 256}, {.device = kCuda});
  Profiler profiler;
  {
    auto scope = profiler.record();
    for (int i = 0; i < 10; ++i) exp(matmul(x, x));
  }
  for (const char* name : {"matmul [cuda:0]", "exp [cuda:0]"}) {
    bool found = false;
    for (const ProfileRow& row : profiler.rows()) {
      if (row.name != name) continue;
      found = true;
      EXPECT_EQ(row.calls, 10) << name;
      EXPECT_EQ(row.untimed, 0) << name;
      EXPECT_GT(row.seconds, 0) << name;
    }
    EXPECT_TRUE(found) << name << " is not in\n" << profiler.table();
  }
}

}  // namespace
}  // namespace gradus
