// Invalid values that kernels detect, such as a class out of range: the CPU's error is thrown where the host
// next waits for the kernel's stream, once. On the emulator.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/losses.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tests/cuda/faults/training_step.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/cuda_emulator/streams.h"

namespace gradus {
namespace {

struct ValuesOnCuda : testing::Test {
  // No test leaves an unreported error.
  ~ValuesOnCuda() override { EXPECT_NO_THROW(synchronize(kCuda)); }
};

// "IndexError: [op] text" of what f throws; "" for nothing.
std::string thrown(const std::function<void()>& f) {
  try {
    f();
    return "";
  } catch (const IndexError& e) {
    return std::string("IndexError: ") + e.what();
  } catch (const ValueError& e) {
    return std::string("ValueError: ") + e.what();
  }
}

Tensor scores(const Shape& shape, Device device, DType dtype = DType::kF32) {
  return raw::to(raw::to(reshape(linspace(-1, 1, shape.product()), shape), dtype), device);
}
Tensor classes(const std::vector<int64_t>& target, const Shape& shape, Device device) {
  return raw::to(tensor(target, shape), device);
}

// A loss of 5 classes whose target at `bad` is `value`.
Tensor wrong_loss(Device device, int64_t bad = 3, int64_t value = 7) {
  std::vector<int64_t> target(6, 1);
  target[static_cast<size_t>(bad)] = value;
  return cross_entropy(scores({6, 5}, device), classes(target, {6}, device));
}

// Two indices of each row, drawn with these weights.
void drawn(Device device, const std::vector<std::vector<double>>& weights, bool replacement = false) {
  std::vector<double> all;
  for (const std::vector<double>& row : weights) all.insert(all.end(), row.begin(), row.end());
  const Shape shape = {int64_t(weights.size()), int64_t(weights[0].size())};
  multinomial(raw::to(tensor(all, shape), device), 2, {replacement}).to_vector<int64_t>();
}

const std::string kText = "IndexError: [cross_entropy] target 7 of sample 3 is no class: there are 5";

TEST_F(ValuesOnCuda, ErrorsAreTheCpus) {
  const std::vector<std::function<void(Device)>> programs = {
      [](Device d) { wrong_loss(d).item<float>(); }, [](Device d) { wrong_loss(d, 5, -1).item<float>(); },
      [](Device d) { wrong_loss(d, 0, int64_t{1} << 62).item<float>(); },
      [](Device d) { wrong_loss(d, 2, -(int64_t{1} << 62) - 12345).item<float>(); },
      // The first of many, whichever thread is first.
      [](Device d) {
        std::vector<int64_t> target(2000, 2);
        for (size_t i = 777; i < target.size(); i += 13) target[i] = 100 + int64_t(i);
        cross_entropy(scores({2000, 4}, d), classes(target, {2000}, d), {.reduction = Reduction::kNone})
            .to_vector<float>();
      },
      [](Device d) {
        nll_loss(scores({2, 3, 2, 2}, d, DType::kF64), classes({0, 1, 2, 0, 0, 9, 0, 0}, {2, 2, 2}, d))
            .item<double>();
      },
      [](Device d) {
        cross_entropy(raw::channels_last(scores({2, 3, 2, 2}, d)),
                      classes({0, 1, 2, 0, 0, 1, 3, 0}, {2, 2, 2}, d), {.ignore_index = 9})
            .item<float>();
      },
      [](Device d) {
        bernoulli(raw::to(tensor({0.5f, 0.f, 1.f, 1.25f, -3.f}), d)).to_vector<float>();
      },
      [](Device d) {
        bernoulli(raw::to(raw::to(tensor({0.5f, -0.1f}), DType::kF64), d)).to_vector<float>();
      },
      [](Device d) { to_string(bernoulli(raw::to(tensor({1e10f}), d))); },
      // An invalid weight, an invalid total, too few positive weights; of several the first.
      [](Device d) {
        drawn(d, {{1, -2, 3}});
      },
      [](Device d) {
        drawn(d, {{1, 2}, {NAN, 1}}, true);
      },
      [](Device d) {
        drawn(d, {{INFINITY, -1}});
      },
      [](Device d) {
        drawn(d, {{0, 0}}, true);
      },
      [](Device d) {
        drawn(d, {{1e308, 1e308}});
      },
      [](Device d) {
        drawn(d, {{1, 0, 0}});
      },
      [](Device d) {
        drawn(d, {{1, 1}, {0, 0}, {-1, 0}}, true);
      },
      [](Device d) {
        drawn(d, {{1, 0}, {0, 0}});
      },
      [](Device d) {
        drawn(d, {{1, -1}, {1, 0}});
      },
      [](Device d) {
        drawn(d, {{1, 1}, {1e308, 1e308}, {1, 0}, {NAN, 1}});
      },
      [](Device d) {
        std::vector<double> row(40000, 0.25);
        row[20801] = -0., row[20802] = -3, row[30000] = NAN, row[20900] = -1;
        drawn(d, {row});
      },
      // Binary cross-entropy: x, target, both; summed in one launch, weighted, strided.
      [](Device d) {
        binary_cross_entropy(raw::to(tensor({0.5f, 1.f, 2.f, -1.f}), d), full({4}, 1, {.device = d}))
            .item<float>();
      },
      [](Device d) {
        const Tensor x = full({3}, 0.5, {.device = d});
        binary_cross_entropy(x, raw::to(tensor({0.f, 1.f, NAN}), d), {.weight = x}).item<float>();
      },
      [](Device d) {
        const Tensor x = raw::to(raw::to(tensor({0.5f, -0.25f}), DType::kBF16), d);
        binary_cross_entropy(x, x, {.reduction = Reduction::kNone}).to_vector<float>();
      },
      [](Device d) {
        const Tensor x = transpose(raw::to(tensor<double>({0., 1., 3., 2.}, {2, 2}), d), 0, 1);
        binary_cross_entropy(x, x).item<double>();
      },
      // Four without an error.
      [](Device d) {
        drawn(d, {{1, 0, 2}, {0, 1, 0.5}});
      },
      [](Device d) {
        drawn(d, {{0, 0, 2}, {0, 1e308, 0.5}}, true);
      },
      [](Device d) { wrong_loss(d, 3, -100).item<float>(); },
      [](Device d) {
        bernoulli(raw::to(tensor({0.f, 1.f}), d)).to_vector<float>();
      }};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    cuda::emulated::set_seed(seed);
    for (size_t i = 0; i < programs.size(); ++i) {
      const std::string want = thrown([&] { programs[i](kCPU); });
      EXPECT_EQ(want.empty(), i + 4 >= programs.size()) << i;
      EXPECT_EQ(thrown([&] { programs[i](kCuda); }), want) << i;
    }
  }
}

TEST_F(ValuesOnCuda, EachWaitOfTheHostFindsThemOnce) {
  const Tensor x = ones({2}, {.device = kCuda}), host = empty({2});
  const std::vector<std::function<void()>> waits = {
      [&] { x.to_vector<float>(); },
      [&] { view_as_strided(x, {}, {}, 0).item<float>(); },
      [&] { to_string(x); },
      [&] { raw::to(x, kCPU); },
      [&] { raw::copy_(host, x); },
      [] { current_stream(kCuda).synchronize(); },
      [] { Event::record(current_stream(kCuda)).synchronize(); },
      [] { synchronize(kCuda); }};
  for (size_t i = 0; i < waits.size(); ++i) {
    const Tensor loss = wrong_loss(kCuda);
    EXPECT_EQ(thrown(waits[i]), kText) << i;
    EXPECT_EQ(thrown(waits[i]), "") << i;
    EXPECT_TRUE(std::isnan(loss.item<float>()));
  }
}

TEST_F(ValuesOnCuda, TheFirstLaunchIsToldAndLaterOnesAfterIt) {
  const Tensor a = wrong_loss(kCuda), b = wrong_loss(kCuda, 0),
               c = bernoulli(full({2}, 2, {.device = kCuda}));
  EXPECT_EQ(thrown([&] { c.to_vector<float>(); }), kText);
  EXPECT_EQ(thrown([&] { c.to_vector<float>(); }), "") << "one record, one error";
  const Tensor d = bernoulli(full({2}, 2, {.device = kCuda}));
  EXPECT_EQ(thrown([&] { a.item<float>(); }),
            "ValueError: [bernoulli] expected probabilities from 0 to 1, got 2 at 0");
}

TEST_F(ValuesOnCuda, StreamsHaveTheirOwn) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    cuda::emulated::set_seed(seed);
    const Stream side = Stream::create(kCuda);
    const auto wrong_on_side = [&] {
      const StreamScope scope(side);
      return wrong_loss(kCuda);
    };
    // Waiting for another stream does not report.
    Tensor loss = wrong_on_side();
    EXPECT_EQ(thrown([&] { current_stream(kCuda).synchronize(); }), "");
    EXPECT_EQ(thrown([&] { side.synchronize(); }), kText);
    // Through events of a stream in between.
    loss = wrong_on_side();
    const Stream between = Stream::create(kCuda);
    between.wait(Event::record(side));
    current_stream(kCuda).wait(Event::record(between));
    EXPECT_EQ(thrown([&] { current_stream(kCuda).synchronize(); }), kText);
    EXPECT_EQ(thrown([&] { side.synchronize(); }), "");
    // A CPU stream that waited.
    loss = wrong_on_side();
    const Stream worker = Stream::create(Device::parse("cpu:1"));
    worker.wait(Event::record(side));
    EXPECT_EQ(thrown([&] { worker.synchronize(); }), kText);
    // Two of them, one after the other.
    loss = wrong_on_side();
    const Tensor own = wrong_loss(kCuda, 1);
    current_stream(kCuda).wait(Event::record(side));
    EXPECT_EQ(thrown([&] { own.item<float>(); }),
              "IndexError: [cross_entropy] target 7 of sample 1 is no class: there are 5");
    EXPECT_EQ(thrown([&] { own.item<float>(); }), kText);
    EXPECT_EQ(thrown([&] { own.item<float>(); }), "");
  }
}

TEST_F(ValuesOnCuda, OfAStreamThatIsGone) {
  for (int i = 0; i < 200; ++i) {  // more than a page has records
    Tensor loss;
    {
      const Stream side = Stream::create(kCuda);
      const StreamScope scope(side);
      loss = wrong_loss(kCuda);
    }
    loss = {};
    empty_cache(kCuda);  // holds streams
    EXPECT_EQ(thrown([] { synchronize(kCuda); }), kText);
    EXPECT_EQ(thrown([] { synchronize(kCuda); }), "");
  }
  EXPECT_LE(Holdings::now().pinned, 1u) << "records are used again";
}

// A stream whose error report the host writes in place of a kernel.
struct ReportingStream {
  internal::DeviceRuntime& runtime = internal::runtime_of(kCuda);
  const cudaStream_t stream = static_cast<cudaStream_t>(runtime.create_stream(0));
  const cuda::ValueReports to = cuda::reports_of(
      ones({1}, {.device = kCuda}), stream,
      [](const cuda::ReportedValue& v) { throw ValueError("test", "found ", v.as_integer()); }, 5);

  void report() const {
    to.record->limit = static_cast<uint64_t>(to.limit);
    to.record->words[0] = 7, to.record->words[1] = to.record->words[2] = 0;
    std::atomic_ref(to.record->launch).store(to.launch);
  }
};
const std::string kReported = "ValueError: [test] found 7";

TEST_F(ValuesOnCuda, OfAStreamThatAnotherThreadDestroysMeanwhile) {
  const ReportingStream s;
  s.report();
  std::string text;
  std::thread other;
  {
    const auto lock = cuda::emulated::Runtime::get().lock();  // the other thread's calls of CUDA wait
    other = std::thread([&] { text = thrown([&] { s.runtime.throw_kernel_errors_on_device(0); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    // On another thread, since elsewhere reports are locked before the runtime.
    std::thread([&] { cuda::retire_reports(s.stream); }).join();
    cuda::emulated::Runtime::get().destroy_stream(s.stream);
  }
  other.join();
  EXPECT_EQ(text, kReported);
}

TEST_F(ValuesOnCuda, OfAStreamThatIsGoneAndStillRuns) {
  bool ran_late = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cuda::emulated::set_seed(seed);
    const ReportingStream s;
    s.runtime.call_on_host(
        s.stream, [](void* p) { static_cast<ReportingStream*>(p)->report(); },
        const_cast<ReportingStream*>(&s));
    s.runtime.destroy_stream(s.stream);
    const std::string first = thrown([&] { s.runtime.throw_kernel_errors_on_device(0); });
    ran_late = ran_late || first.empty();
    EXPECT_EQ(first + thrown([&] { s.runtime.throw_kernel_errors_on_device(0); }), kReported)
        << "seed " << seed;
  }
  EXPECT_TRUE(ran_late) << "the test would not notice";
}

// The host looks while a launch is writing its report.
TEST_F(ValuesOnCuda, OfALaunchThatStillRuns) {
  for (const bool on_device : {false, true}) {
    const ReportingStream s;
    struct Launch {
      const ReportingStream& s;
      std::atomic<bool> has_begun{false};
    } launch{s};
    const auto run = [](void* p) {
      auto& l = *static_cast<Launch*>(p);
      std::atomic_ref(l.s.to.record->launch).store(l.s.to.launch);
      l.has_begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      l.s.report();
    };
    s.runtime.call_on_host(s.stream, run, &launch);
    std::thread other([&] { s.runtime.synchronize(s.stream); });
    while (!launch.has_begun) std::this_thread::yield();
    EXPECT_EQ(thrown([&] {
                on_device ? s.runtime.throw_kernel_errors_on_device(0)
                          : s.runtime.throw_kernel_errors(s.stream);
              }),
              kReported);
    other.join();
    s.runtime.destroy_stream(s.stream);
  }
}

TEST_F(ValuesOnCuda, DevicesHaveTheirOwn) {
  if (cuda::emulated::device_count() < 2) GTEST_SKIP();
  const Device second{DeviceType::kCUDA, 1};
  const Tensor loss = wrong_loss(second);
  EXPECT_EQ(thrown([] { synchronize(kCuda); }), "");
  EXPECT_EQ(thrown([&] { synchronize(second); }), kText);
}

// The error names the op that launched the kernel, not the one that waits.
TEST_F(ValuesOnCuda, TheOpThatWasCalledIsNamed) {
  Tensor loss = wrong_loss(kCuda);
  {
    const OpCall call("conv2d");
    EXPECT_EQ(thrown([&] { synchronize(kCuda); }), kText);
    EXPECT_STREQ(internal::called_op, "conv2d");
  }
  {
    const OpCall call("my_loss");
    loss = wrong_loss(kCuda);
  }
  EXPECT_EQ(thrown([&] { loss.item<float>(); }),
            "IndexError: [my_loss] target 7 of sample 3 is no class: there are 5");
  raw::CrossEntropySpec spec;
  spec.log_probs = true;
  const auto raw_loss = [&](Device d) {
    raw::cross_entropy(scores({2, 3}, d), classes({0, 3}, {2}, d), {}, spec).loss.item<float>();
  };
  EXPECT_EQ(thrown([&] { raw_loss(kCuda); }), thrown([&] { raw_loss(kCPU); }));
}

// A step with a wrong target does not stop the program: the next one is right.
TEST_F(ValuesOnCuda, TrainingGoesOn) {
  const Expected expected(4, 4);
  Training training(kCuda, 4, 4);
  const Tensor right = training.target;
  training.target = tensor(std::vector<int64_t>{2, 3}, {2});
  EXPECT_EQ(thrown([&] { training.step(); }),
            "IndexError: [cross_entropy] target 3 of sample 1 is no class: there are 3");
  Training again(kCuda, 4, 4);
  EXPECT_TRUE(is_near(again.step(), expected.read[0]));
}

}  // namespace
}  // namespace gradus
