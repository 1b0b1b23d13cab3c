// DataParallel, which splits a batch over copies of a model on several devices of one process (here logical
// CPU devices), against the same model on one device, in f64. Also the state of the copies, and errors.
#include "gradus/distributed/data_parallel/data_parallel.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/data_parallel/internal/device_imbalance.h"
#include "gradus/nn/nn.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/values.h"

namespace gradus::dist {
namespace {

TEST(DataParallelDevices, MayDifferByAQuarter) {
  const DeviceProperties large = {.name = "L", .memory_bytes = 100, .multiprocessors = 100};
  const auto other = [](int64_t memory, int multiprocessors) {
    return DeviceProperties{.name = "S", .memory_bytes = memory, .multiprocessors = multiprocessors};
  };
  EXPECT_EQ(internal::imbalance_of({}), "");
  EXPECT_EQ(internal::imbalance_of({large, other(75, 75)}), "");
  EXPECT_THAT(internal::imbalance_of({large, other(74, 100)}),
              testing::HasSubstr("a S has 74 bytes of memory, a L 100"));
  EXPECT_THAT(internal::imbalance_of({other(100, 74), large, large}),
              testing::HasSubstr("a S has 74 multiprocessors, a L 100"));
}

const Device kOne = Device::parse("cpu:1"), kTwo = Device::parse("cpu:2"), kThree = Device::parse("cpu:3");
const std::vector<Device> kThreeDevices = {kCPU, kOne, kTwo};

struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 2, .out = 3, .kernel = 3}};
  nn::Linear fc{this, "fc", {.in = 3 * 2 * 2, .out = 4}};
  Net() { to(DType::kF64); }
  Tensor forward(const Tensor& x) override { return fc(flatten(tanh(conv(x)), 1)); }
};

// Another instance with the same weights, on cpu.
std::unique_ptr<Net> twin(const nn::Module& net) {
  auto other = std::make_unique<Net>();
  copy_state_(net, *other);
  return other;
}

Tensor images(int64_t n, uint64_t seed = 1) { return random_tensor({n, 2, 4, 4}, DType::kF64, seed); }

template <class M> std::unique_ptr<M> make() { return std::make_unique<M>(); }

// The inputs that the layers of type Logged got: "[shape] device".
struct Log {
  std::mutex mutex;
  std::vector<std::string> seen;
  void add(const Tensor& x) {
    std::lock_guard lock(mutex);
    seen.push_back(concat(x.shape(), " ", x.device()));
  }
  std::vector<std::string> take() {
    std::vector<std::string> all;
    std::swap(all, seen);
    std::sort(all.begin(), all.end());
    return all;
  }
} g_log;

struct Logged : nn::Layer {
  nn::Parameter scale{this, "scale", full({1}, 2, {.device = Context::current().device})};
  Tensor forward(const Tensor& x) override {
    g_log.add(x);
    return x * scale;
  }
};

struct Case {
  std::string name;
  DataParallelOptions options;
  int64_t samples;
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

class DataParallelOn : public testing::TestWithParam<Case> {};

TEST_P(DataParallelOn, SeveralDevicesEqualsOneToSecondOrder) {
  const Case& c = GetParam();
  DataParallel<Net> net(make<Net>, c.options);
  const std::unique_ptr<Net> plain = twin(net.module());
  const Tensor x = images(c.samples), factor = random_tensor({c.samples, 4}, DType::kF64, 3);
  // A penalty on the gradient by x, so that gradients of gradients cross devices as well.
  const auto loss_of = [&](auto& f, const Tensor& input) {
    const auto sum_of = [&](const Tensor& z) { return sum(to(f(z), kCPU) * factor); };
    return sum_of(input) + sum(square(autograd::grad(sum_of, input)));
  };
  for (int step = 0; step < 2; ++step) {
    GradManager gm;
    gm.attach(net->parameters()).attach(plain->parameters()).attach(x);
    std::vector<Tensor> grads;
    const auto recording = gm.record();
    const Tensor got = loss_of(net, x), want = loss_of(*plain, x);
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-12 * std::abs(want.item<double>()));
    gm.backward(got - to(want, got.device()));  // the gradient of x is a difference near 0
    for (size_t i = 0; i < plain->parameters().size(); ++i) {
      const Tensor p = net->parameters()[i], q = plain->parameters()[i];
      EXPECT_EQ(p.grad().device(), p.device());
      expect_near(to(p.grad(), kCPU), -q.grad(), 1e-12);
      EXPECT_GT(sum_of_products(q.grad(), q.grad()), 1e-6);
      raw::copy_(p, p * 1.5), raw::copy_(q, q * 1.5);  // the next step's copies have the new weights
      p.set_grad({}), q.set_grad({});
    }
    expect_near(x.grad(), zeros_like(x), 1e-11);
    x.set_grad({});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Devices, DataParallelOn,
    testing::Values(Case{"two", {.device_ids = {kCPU, kOne}}, 4},
                    Case{"uneven", {.device_ids = kThreeDevices}, 7},
                    Case{"fewer_samples", {.device_ids = kThreeDevices}, 2},
                    Case{"one_sample", {.device_ids = kThreeDevices}, 1},
                    Case{"without_cpu_0", {.device_ids = {kTwo, kOne}}, 5},
                    Case{"output_elsewhere", {.device_ids = {kCPU, kOne}, .output_device = kThree}, 5},
                    Case{"one_device", {.device_ids = {kOne}}, 3}, Case{"none_named", {}, 3}),
    [](const auto& info) { return info.param.name; });

TEST(DataParallel, RunsAPartOfTheBatchOnEachDevice) {
  DataParallel<Logged> net(make<Logged>, {.device_ids = kThreeDevices});
  const Tensor y = net(ones({7, 2}));
  EXPECT_EQ(g_log.take(), (std::vector<std::string>{"[1,2] cpu:2", "[3,2] cpu", "[3,2] cpu:1"}));
  EXPECT_EQ(describe(y), "f32[7,2] cpu");
  net(ones({2, 2}));
  EXPECT_EQ(g_log.take(), (std::vector<std::string>{"[1,2] cpu", "[1,2] cpu:1"}));
  net(ones({0, 2}));
  EXPECT_EQ(g_log.take(), (std::vector<std::string>{"[0,2] cpu"}));
}

TEST(DataParallel, SplitsAndJoinsAtDimAndGivesTheResultToOutputDevice) {
  for (const int64_t dim : {1, -1}) {
    DataParallel<Logged> net(make<Logged>, {.device_ids = {kCPU, kOne}, .output_device = kTwo, .dim = dim});
    const Tensor x = random_tensor({2, 5}, DType::kF32);
    const Tensor y = net(x);
    EXPECT_EQ(g_log.take(), (std::vector<std::string>{"[2,2] cpu:1", "[2,3] cpu"}));
    EXPECT_EQ(y.device(), kTwo);
    expect_near(y, x * 2, 0);
  }
}

struct Loss : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 2, .out = 1}};
  Tensor forward(const Tensor& x) override { return mean(fc(x)); }
};

TEST(DataParallel, MakesAVectorOfScalarsInOrderOfTheDevices) {
  DataParallel<Loss> net(make<Loss>, {.device_ids = {kCPU, kOne}});
  const Tensor x = random_tensor({4, 2});
  GradManager gm;
  gm.attach(net->parameters());
  const auto recording = gm.record();
  const Tensor losses = net(x);
  ASSERT_EQ(losses.shape(), (Shape{2}));
  const auto got = losses.to_vector<float>();
  EXPECT_FLOAT_EQ(got[0], net.module()(narrow(x, 0, 0, 2)).item<float>());
  EXPECT_FLOAT_EQ(got[1], net.module()(narrow(x, 0, 2, 2)).item<float>());
  gm.backward(mean(losses));
  EXPECT_NEAR(net->fc.bias.grad().item<float>(), 1, 1e-6);
}

struct Counting : nn::Layer {
  nn::BatchNorm1d bn{this, "bn", {.features = 1}};
  nn::Buffer offset{
      this, "offset", full({1}, 1, {.device = Context::current().device}), {.persistent = false}};
  Tensor forward(const Tensor& x) override { return bn(x) + offset; }
};

TEST(DataParallel, CopiesBuffersAndKeepsWhatTheFirstCopyWrites) {
  DataParallel<Counting> net(make<Counting>, {.device_ids = {kCPU, kOne}});
  raw::fill_(net->offset, 5);
  net->eval();
  raw::fill_(net->bn.running_mean, 3);
  expect_near(net(full({2, 1}, 3)), full({2, 1}, 5), 0);  // both copies: (3 - 3) + 5
  net->train();
  net(tensor(std::vector<float>{0, 2, 100, 200}, {4, 1}));
  EXPECT_FLOAT_EQ(net->bn.running_mean.item<float>(), 0.9f * 3 + 0.1f * 1);  // of 0 and 2
  EXPECT_EQ(net->bn.num_batches_tracked.item<int64_t>(), 1);
}

struct Modes : nn::Layer {
  nn::Dropout first{this, "first", {.p = 0.5}}, second{this, "second", {.p = 0.5}};
  Tensor forward(const Tensor& x) override { return second(first(x)); }
};

TEST(DataParallel, GivesCopiesTheModeOfEachModule) {
  DataParallel<Modes> net(make<Modes>, {.device_ids = {kCPU, kOne}});
  net->first.eval();
  const auto values = net(ones({2, 1000})).to_vector<float>();
  for (float v : values) ASSERT_TRUE(v == 0 || v == 2) << v;  // 4 if both dropped
  net->eval();
  expect_near(net(ones({2, 10})), ones({2, 10}), 0);
}

TEST(DataParallel, DrawsDifferentlyOnEachDeviceAndAlikeInEveryRun) {
  std::vector<std::vector<float>> runs;
  for (int run = 0; run < 2; ++run) {
    DataParallel<Modes> net(make<Modes>, {.device_ids = {kCPU, kOne}});
    manual_seed(5);
    const auto once = net(ones({2, 64})).to_vector<float>(), again = net(ones({2, 64})).to_vector<float>();
    EXPECT_NE(once, again);
    EXPECT_NE(std::vector(once.begin(), once.begin() + 64), std::vector(once.begin() + 64, once.end()));
    runs.push_back(once);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

TEST(DataParallel, BuildingCopiesDrawsNoRandomNumbersOfTheCaller) {
  manual_seed(3);
  const Net plain;
  const auto after = Context::current().generator->state();
  manual_seed(3);
  DataParallel<Net> net(make<Net>, {.device_ids = kThreeDevices});
  EXPECT_EQ(Context::current().generator->state(), after);
  expect_near(net->fc.weight, plain.fc.weight, 0);
}

TEST(DataParallel, KeepsTheModelsNamesAndMembers) {
  DataParallel<Net> net(make<Net>, {.device_ids = {kOne, kTwo}});
  EXPECT_EQ(net->state_dict()[0].first, "conv.weight");
  EXPECT_EQ(net->fc.weight.device(), kOne);
  Tensor before = net->fc.weight;
  net(images(4));
  EXPECT_TRUE(net->fc.weight.is_same(before));
}

TEST(DataParallel, RecordsNothingUnderNoRecord) {
  DataParallel<Net> net(make<Net>, {.device_ids = {kCPU, kOne}});
  GradManager gm;
  gm.attach(net->parameters());
  const auto recording = gm.record();
  {
    const auto off = no_record();
    EXPECT_FALSE(autograd::is_tracked(net(images(4))));
  }
  EXPECT_TRUE(autograd::is_tracked(net(images(4))));
}

struct Tied : nn::Layer {
  nn::Linear a{this, "a", {.in = 2, .out = 2, .bias = false}},
      b{this, "b", {.in = 2, .out = 2, .bias = false}};
  Tied() { static_cast<Tensor&>(b.weight) = a.weight; }
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

TEST(DataParallel, KeepsTiedWeightsTied) {
  DataParallel<Tied> net(make<Tied>, {.device_ids = {kCPU, kOne}});
  const Tensor x = random_tensor({4, 2});
  ASSERT_EQ(net->parameters().size(), 1u);
  expect_near(net(x), net.module()(x), 1e-6);
}

struct Failing : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 1, .out = 1}};
  Tensor forward(const Tensor& x) override {
    const float what = x.to_vector<float>()[0];
    if (what == 1) return fc(ones({1, 3}, {.device = x.device()}));
    if (what == 2) throw std::out_of_range("a user's own");
    if (what == 3) throw InternalError("broken");
    if (what == 4) return {};
    return fc(x);
  }
};

TEST(DataParallel, TellsWhatACopyThrowsWithItsDevice) {
  DataParallel<Failing> net(make<Failing>, {.device_ids = kThreeDevices});
  const auto x = [](float a, float b, float c) { return tensor(std::vector<float>{a, b, c}, {3, 1}); };
  EXPECT_ERROR(ShapeError, net(x(0, 1, 2)), "DataParallel on cpu:1", "in fc");  // the first of two
  EXPECT_ERROR(ShapeError, net(x(1, 0, 0)), "DataParallel on cpu: ");
  EXPECT_ERROR(Error, net(x(0, 0, 2)), "[DataParallel] on cpu:2: a user's own");
  try {
    net(x(0, 0, 2));
  } catch (const Error& e) {
    EXPECT_THROW(std::rethrow_if_nested(e), std::out_of_range);
  }
  EXPECT_ERROR(InternalError, net(x(0, 3, 0)), "broken");
  EXPECT_ERROR(ValueError, net(x(0, 0, 4)), "returned no tensor on cpu:2");
  EXPECT_EQ(net(x(0, 0, 0)).shape(), (Shape{3, 1}));  // works after an error
}

TEST(DataParallel, RefusesWrongDevicesAndInputs) {
  EXPECT_ERROR(ValueError, DataParallel<Net>(make<Net>, {.device_ids = {kOne, kCPU, kOne}}),
               "device_ids has cpu:1 twice");
  EXPECT_ERROR(DeviceError, DataParallel<Net>(make<Net>, {.device_ids = {{DeviceType::kMeta}}}), "meta");
  EXPECT_ERROR(
      DeviceError,
      DataParallel<Net>(make<Net>, {.device_ids = {kCPU}, .output_device = Device{DeviceType::kMeta}}),
      "output_device", "meta");
  EXPECT_ERROR(DeviceError, DataParallel<Net>(make<Net>, {.device_ids = {kCPU, {DeviceType::kCPU, 64}}}),
               "cpu:64 does not exist");
  EXPECT_ERROR(ValueError, DataParallel<Net>([] { return std::unique_ptr<Net>(); }), "no model");
  EXPECT_ERROR(DeviceError,
               DataParallel<Net>(
                   [] {
                     auto net = make<Net>();
                     net->to(kTwo);
                     return net;
                   },
                   {.device_ids = {kOne, kCPU}}),
               "expected all parameters and buffers on cpu:1", "'conv.weight'", "cpu:2");
  DataParallel<Net> net(make<Net>, {.device_ids = {kCPU, kOne}});
  EXPECT_ERROR(ShapeError, net(scalar(1)), "a dimension to split");
  net->to(kOne);
  EXPECT_ERROR(DeviceError, net(images(2)), "'conv.weight'", "cpu:1");
}

}  // namespace
}  // namespace gradus::dist
