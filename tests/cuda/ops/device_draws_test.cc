// DeviceDraws: random ops read the seed and the number of draws from device memory, so that the kernels of a
// captured step draw new numbers each time they run. All draws are those that the host's generator would
// make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

using testing::Each;
using testing::HasSubstr;
using Tensors = std::vector<Tensor>;

constexpr Device kCuda{DeviceType::kCUDA}, kSecond{DeviceType::kCUDA, 1};
constexpr uint64_t kSeed = 0xf23456789abcdef0;

RandomGenerator& generator() { return *Context::current().generator; }

std::string bits(const Tensor& x) {
  const Tensor here = raw::contiguous(raw::to(x, kCPU));
  return {static_cast<const char*>(here.raw_ptr()), static_cast<size_t>(here.nbytes())};
}
std::vector<std::string> bits(const Tensors& xs) {
  std::vector<std::string> all;
  for (const Tensor& x : xs) all.push_back(bits(x));
  return all;
}

// Recorded launches of random kernels: their keys, and functions that launch again with the same arguments,
// as a captured step does.
struct Launches {
  std::vector<raw::DrawKey> keys;
  std::vector<std::function<void()>> run;
};
Launches* launches = nullptr;

// While alive, adds the calls of one kernel slot to `launches`.
template <class Slot, Slot& slot> class Recorder;
template <class... Args, KernelSlot<void(const Tensor&, Args...)>& slot>
class Recorder<KernelSlot<void(const Tensor&, Args...)>, slot> {
 public:
  Recorder() { kernel_ = std::exchange(slot.cuda, &run); }
  ~Recorder() { slot.cuda = kernel_; }

 private:
  static void run(const Tensor& out, Args... args) {
    (keep(args), ...);
    launches->run.push_back(
        [out, kernel = kernel_, ... copies = std::decay_t<Args>(args)] { kernel(out, copies...); });
    kernel_(out, args...);
  }
  static void keep(const raw::DrawKey& key) { launches->keys.push_back(key); }
  template <class T> static void keep(const T&) {}
  static inline typename KernelSlot<void(const Tensor&, Args...)>::Function kernel_ = nullptr;
};
class Recording {
 public:
  Recording() { launches = &calls; }
  ~Recording() { launches = nullptr; }
  Launches calls;

 private:
  template <auto& slot> using Of = Recorder<std::remove_reference_t<decltype(slot)>, slot>;
  Of<raw::uniform_kernel> uniform_;
  Of<raw::normal_kernel> normal_;
  Of<raw::bernoulli_kernel> bernoulli_;
  Of<raw::dropout_mask_kernel> dropout_mask_;
  Of<raw::dropout_kernel> dropout_;
  Of<raw::randint_kernel> randint_;
  Of<raw::randperm_kernel> randperm_;
};

// Draws by all kernel slots, in rows and other layouts, into the tensors that are returned.
Tensors draw(Device device) {
  Tensors all;
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    const TensorOptions options{t, device};
    all.push_back(rand({1003}, options));
    all.push_back(randn({1003}, options));
    all.push_back(empty_channels_last({2, 5, 6, 7}, options));
    raw::uniform_(all.back(), -2, 3);
    all.push_back(empty_channels_last({2, 5, 6, 7}, options));
    raw::normal_(all.back(), 1, 2);
    for (const Shape& shape : {Shape{1003}, Shape{2, 5, 6, 7}}) {
      Tensor x = shape.size() == 1 ? empty(shape, options) : empty_channels_last(shape, options);
      raw::fill_(x, 1);
      const raw::DropoutResult dropped = raw::dropout(x, 0.4, 1.25);
      all.insert(all.end(), {dropped.y, dropped.mask});
    }
  }
  for (const Tensor& x :
       {empty({1003}, {.device = device}), empty_channels_last({2, 5, 6, 7}, {.device = device})}) {
    all.push_back(raw::bernoulli_mask(x, 0.3));
    all.push_back(raw::dropout_mask(x, 0.3));
  }
  all.push_back(randint(-5, 1000, {1003}, {DType::kI64, device}));
  all.push_back(randperm(333, {DType::kI64, device}));
  return all;
}
// Ops that draw through uniform numbers.
Tensors draw_by_numbers(Device device) {
  const Tensor p = full({300}, 0.3, {.device = device});
  return {bernoulli(p), multinomial(p, 40), multinomial(p, 400, {.replacement = true}),
          randint_like(p, 0, 1000), normal(p, p)};
}

TEST(DeviceDraws, AreThoseOfOthers) {
  for (const auto f : {&draw, &draw_by_numbers}) {
    manual_seed(kSeed);
    rand({3}), rand({3});
    const auto before = generator().state();
    const Tensors want = f(kCPU);
    const auto after = generator().state();
    generator().set_state(before);
    DeviceDraws draws(kCuda);
    Recording recording;
    {
      const DeviceDraws::Scope scope(draws);
      EXPECT_EQ(bits(f(kCuda)), bits(want));
    }
    EXPECT_EQ(generator().state(), after);
    // Kernels read the seed and the number of draws from `base`: the host's part of the key lacks both.
    ASSERT_EQ(recording.calls.keys.size(), after[1] - before[1]);
    for (size_t i = 0; i < recording.calls.keys.size(); ++i) {
      EXPECT_EQ(recording.calls.keys[i].philox.seed, 0u);
      EXPECT_EQ(recording.calls.keys[i].philox.stream, i);
      EXPECT_EQ(recording.calls.keys[i].base.to_vector<int64_t>(),
                (std::vector<int64_t>{static_cast<int64_t>(kSeed), 2}));
    }
    // After the scope, the host's generator continues.
    const Tensor next = rand({100}, {.device = kCuda});
    EXPECT_FALSE(recording.calls.keys.back().base.defined());
    generator().set_state(after);
    EXPECT_EQ(bits(next), bits(rand({100})));
  }
}

// Recorded launches run again: after other draws, with another seed, and after a checkpoint was loaded.
TEST(DeviceDraws, AreTheNextOnesWhereTheirKernelsRunAgain) {
  manual_seed(kSeed);
  DeviceDraws draws(kCuda);
  Recording recording;
  Tensors drawn;
  {
    const DeviceDraws::Scope scope(draws);
    drawn = draw(kCuda);
  }
  const Launches captured = std::move(recording.calls);
  const auto expect_next = [&](const char* when) {
    const auto before = generator().state();
    draws.repeat();
    for (const auto& launch : captured.run) launch();
    const auto after = generator().state();
    generator().set_state(before);
    EXPECT_EQ(bits(drawn), bits(draw(kCPU))) << when;
    EXPECT_EQ(generator().state(), after) << when;
  };
  expect_next("at once");
  expect_next("again");
  rand({3}), rand({3}, {.device = kCuda});
  expect_next("behind other draws");
  manual_seed(77);
  expect_next("with another seed");
  generator().set_state({~uint64_t{0}, ~uint64_t{0} - 5});
  expect_next("with a number of draws that passes 2^64");
  generator().set_state({3, 1 << 20});
  expect_next("with the state of a checkpoint");
}

// A capture runs no kernel, so the generator's state is restored after it, and the first run is a repetition.
TEST(DeviceDraws, AreTheNextOnesAfterACapture) {
  manual_seed(kSeed);
  rand({3});
  const auto before = generator().state();
  const Tensors want = draw(kCPU);
  generator().set_state(before);
  DeviceDraws draws(kCuda);
  Recording recording;
  Tensors drawn;
  {
    const DeviceDraws::Scope scope(draws);
    drawn = draw(kCuda);
  }
  for (const Tensor& x : drawn) raw::fill_(x, 0);
  generator().set_state(before);
  draws.repeat();
  for (const auto& launch : recording.calls.run) launch();
  EXPECT_EQ(bits(drawn), bits(want));
}

TEST(DeviceDraws, DoNotWait) {
  manual_seed(kSeed);
  const Tensor x = zeros({1000}, {.device = kCuda}), mask = empty_like(x, DType::kBool);
  DeviceDraws draws(kCuda);
  const auto step = [&] {
    raw::uniform_(x), raw::normal_(x);
    raw::dropout(x, 0.5, 2, x);
  };
  const auto scoped_step = [&] {
    const DeviceDraws::Scope scope(draws);
    step();
  };
  step(), scoped_step(), draws.repeat();
  cuda::HostCallScope calls;
  step();
  const int64_t of_step = calls.total().launches;
  scoped_step();
  EXPECT_EQ(calls.total().launches, 2 * of_step + 2) << "the seed and the number of draws";
  draws.repeat();
  EXPECT_EQ(calls.total().launches, 2 * of_step + 4);
  manual_seed(3);
  step();
  draws.repeat();
  EXPECT_EQ(calls.total().launches, 3 * of_step + 6);
  EXPECT_EQ(calls.total().waits, 0);
  EXPECT_EQ(calls.total().allocations, 0);
  EXPECT_EQ(calls.total().copies_to_device + calls.total().copies_to_host, 0);
}

// The backward recomputes, with the generator set back meanwhile.
TEST(DeviceDraws, GoBackWithACheckpoint) {
  const auto gradient = [](Device device) {
    manual_seed(kSeed);
    const auto drop = [](const Tensor& x) { return dropout(dropout(x * x, 0.3), 0.5); };
    return autograd::grad(
        [&](const Tensor& x) {
          const Tensor first = autograd::checkpoint(drop, x), second = dropout(first, 0.25);
          return sum(autograd::checkpoint(drop, second));
        },
        raw::to(full({1003}, 1.5), device));
  };
  const std::string want = bits(gradient(kCPU));
  const auto after = generator().state();
  EXPECT_EQ(bits(gradient(kCuda)), want);
  manual_seed(5);
  DeviceDraws draws(kCuda);
  Recording recording;
  const DeviceDraws::Scope scope(draws);
  EXPECT_EQ(bits(gradient(kCuda)), want);
  EXPECT_EQ(generator().state(), after);
  EXPECT_GT(recording.calls.keys.size(), after[1]);
  for (const raw::DrawKey& key : recording.calls.keys) EXPECT_TRUE(key.base.defined());
}

// Each data-parallel replica drops other elements.
TEST(DeviceDraws, DropTheReplicasElements) {
  const auto drop = [](Device device) { return raw::dropout_mask(empty({1003}, {.device = device}), 0.5); };
  Context context = Context::current().snapshot();
  context.job = make_ref<Job>();
  context.job->size = 4, context.job->rank = 3;
  const ContextScope own(context);
  manual_seed(kSeed);
  const Tensor want = drop(kCPU);
  manual_seed(kSeed);
  DeviceDraws draws(kCuda);
  const DeviceDraws::Scope scope(draws);
  EXPECT_EQ(bits(drop(kCuda)), bits(want));
}

TEST(DeviceDraws, AreThoseOfOneDeviceAndOneGenerator) {
  const auto everywhere = [](bool on_cpu) {
    manual_seed(kSeed);
    Tensors all;
    const auto number = [&](Device d) { all.push_back(rand({100}, {.device = on_cpu ? kCPU : d})); };
    number(kCuda), number(kCPU), number(kSecond), number(kCuda);
    Context context = Context::current().snapshot();
    context.generator = std::make_shared<RandomGenerator>(7);
    {
      const ContextScope other(context);
      number(kCuda), number(kCuda);
    }
    number(kCuda), number(kSecond);
    return bits(all);
  };
  const std::vector<std::string> want = everywhere(true);
  manual_seed(5);
  DeviceDraws draws(kCuda), on_second(kSecond);
  Recording recording;
  {
    const DeviceDraws::Scope scope(draws);
    EXPECT_EQ(everywhere(false), want);
    const DeviceDraws::Scope another(on_second);
    EXPECT_EQ(everywhere(false), want);
  }
  std::vector<int> devices;  // of each key's `base`; -1: none
  for (const raw::DrawKey& key : recording.calls.keys)
    devices.push_back(key.base.defined() ? key.base.device().index : -1);
  EXPECT_EQ(devices, (std::vector<int>{0, -1, 0, -1, -1, 0, -1, 0, 1, 0, -1, -1, 0, 1}));
}

// Draws on another stream, which run after the host has left the scope.
TEST(DeviceDraws, KeepTheirNumbersForOtherStreams) {
  const auto like = [](Device d) { return empty({1003}, {.device = d}); };
  const std::vector<std::function<Tensor(Device)>> slots = {
      [](Device d) { return rand({1003}, {.device = d}); },
      [](Device d) { return randn({1003}, {.device = d}); },
      [&](Device d) { return raw::bernoulli_mask(like(d), 0.3); },
      [&](Device d) { return raw::dropout_mask(like(d), 0.3); },
      [](Device d) { return raw::dropout(full({1003}, 1.0, {.device = d}), 0.3, 2).mask; },
      [](Device d) {
        return randint(10, {1003}, {DType::kI64, d});
      },
      [](Device d) {
        return randperm(100, {DType::kI64, d});
      }};
  const Stream side = Stream::create(kCuda);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    manual_seed(kSeed);
    const std::string want = bits(slots[slot](kCPU));
    for (uint64_t order = 1; order <= 10; ++order) {
      cuda::emulated::set_seed(order);
      manual_seed(kSeed);
      Tensor drawn;
      {
        DeviceDraws draws(kCuda);
        const DeviceDraws::Scope scope(draws);
        side.wait(Event::record(Stream::of(kCuda)));
        const StreamScope on(side);
        drawn = slots[slot](kCuda);
      }
      Tensors others;
      for (int i = 0; i < 8; ++i) others.push_back(full({2}, 99, {DType::kI64, kCuda}));
      Stream::of(kCuda).synchronize();
      const StreamScope on(side);
      EXPECT_EQ(bits(drawn), want) << "slot " << slot << ", order " << order;
    }
  }
}

template <class E, class F> void expect_error(const char* text, F f) {
  try {
    f();
    FAIL() << "no error: " << text;
  } catch (const E& e) {
    EXPECT_THAT(e.what(), HasSubstr(text));
  }
}

TEST(DeviceDraws, SayWhatIsWrong) {
  expect_error<DeviceError>("expected cpu or a CUDA device, got cpu:1", [] {
    DeviceDraws draws(Device{DeviceType::kCPU, 1});
  });
  DeviceDraws draws(kCuda);
  expect_error<StateError>("no scope has ended", [&] { draws.repeat(); });
  {
    const DeviceDraws::Scope scope(draws);
    expect_error<StateError>("a scope of it lives", [&] { const DeviceDraws::Scope again(draws); });
    expect_error<StateError>("no scope has ended", [&] { draws.repeat(); });
    manual_seed(kSeed);
    const std::string got = bits(rand({9}, {.device = kCuda}));
    manual_seed(kSeed);
    EXPECT_EQ(got, bits(rand({9})));
  }
  expect_error<StateError>("the generator was seeded", [&] { draws.repeat(); });
  {
    const DeviceDraws::Scope scope(draws);
    rand({9}, {.device = kCuda});
  }
  draws.repeat();
  EXPECT_EQ(generator().state(), (std::array<uint64_t, 2>{kSeed, 3}));
}

}  // namespace
}  // namespace gradus
