// A backward over forwards on several streams gives the gradients of the synchronous CPU, ready for the
// caller's stream. Runs on cpu:1 and, linked with the GPU emulator, on cuda:0. Values are small integers, so
// sums are exact; they differ between rounds, so that stale memory of an earlier round is detected.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

using Tensors = std::vector<Tensor>;
constexpr int kRounds = 50;
constexpr int64_t kElements = 64;

bool has_cuda() {
  static const bool has = cuda_device_count() > 0;
  return has;
}
Device device(int index) {
  return has_cuda() ? Device{DeviceType::kCUDA, int16_t(index)}
                    : Device{DeviceType::kCPU, int16_t(index + 1)};
}

// Delays a stream. The emulated device orders streams at random anyway.
void delay(Device d) {
  static std::mt19937 random(unsigned(testing::UnitTest::GetInstance()->random_seed()));
  if (d.type != DeviceType::kCPU || d == kCPU) return;
  const std::chrono::microseconds time(random() % 150);
  current_stream(d).enqueue([time] { std::this_thread::sleep_for(time); });
}

// The identity, whose forward and backward are delayed on their stream.
struct Late : autograd::Function {
  static Tensor copy(const Tensor& x) {
    delay(x.device());
    return x * 1;
  }
  Tensors forward(const Tensors& xs) override { return {copy(xs[0])}; }
  Tensors backward(Tensors dys) override { return {copy(dys[0])}; }
};
Tensor late(const Tensor& x) { return autograd::apply<Late>(x); }

// One repetition of a test, the n-th, on `device`, with side streams; `n` changes the values.
struct Round {
  Round(Device d, Device other, int n)
      : device(d),
        other(other),
        one(Stream::create(d)),
        two(Stream::create(d)),
        three(Stream::create(d)),
        n(n) {}

  const Device device, other;
  const Stream one, two, three;
  const int n;

  Tensor numbers(int salt) const {
    std::vector<float> v(kElements);
    for (size_t i = 0; i < v.size(); ++i) v[i] = float((int(i) * salt + n) % 5 - 2);
    return raw::to(tensor(v, {kElements}), device);
  }
  // Calls f on a stream that waits for the current one, which then waits for it.
  template <class F> Tensor on(const Stream& stream, const F& f) const {
    const Stream before = current_stream(stream.device());
    stream.wait(Event::record(before));
    Tensor y;
    {
      const StreamScope scope(stream);
      y = f();
    }
    before.wait(Event::record(stream));
    return y;
  }
};

// Copies made by work queued now on the current stream: the values that such work sees.
template <class... T> Tensors seen(const T&... xs) { return {raw::clone(xs)...}; }

using Program = std::function<Tensors(const Round&)>;

std::vector<std::vector<float>> values(const Tensors& xs) {
  std::vector<std::vector<float>> all;
  for (const Tensor& x : xs) all.push_back(x.to_vector<float>());
  return all;
}

void expect_the_same_on_streams(const Program& program) {
  int wrong = 0;
  for (int n = 0; n < kRounds; ++n)
    wrong += values(program({device(0), device(1), n})) != values(program({kCPU, kCPU, n}));
  EXPECT_EQ(wrong, 0) << "of " << kRounds << " rounds";
}

TEST(StreamsOfABackward, ForkAndJoin) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor a = x * w;
    const Tensor b = r.on(r.one, [&] { return late(square(a)); });
    const Tensor c = r.on(r.two, [&] { return late(a * w); });
    gm.backward(sum(b * c + a));
    return seen(x.grad(), w.grad());
  });
}

TEST(StreamsOfABackward, OneStreamPassesToTheNext) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(3);
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    const Tensor a = r.on(r.one, [&] { return late(square(x)); });
    const Tensor b = r.on(r.two, [&] { return late(a * 2); });
    const Tensor c = r.on(r.three, [&] { return late(b * x); });
    gm.backward(sum(c));
    return seen(x.grad());
  });
}

TEST(StreamsOfABackward, LeavesThatSeveralStreamsUse) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor w = r.numbers(1);
    GradManager gm;
    gm.attach(w);
    Tensors all;
    for (int i = 1; i <= 2; ++i) {  // the second backward adds to the first one's gradient
      auto recording = gm.record();
      const Tensor a = r.on(r.one, [&] { return late(w * i); });
      const Tensor b = r.on(r.two, [&] { return late(square(w)); });
      const Tensor c = r.on(r.three, [&] { return late(w * w * w); });
      gm.backward(sum(a) + sum(b) + sum(c));
      all.push_back(raw::clone(w.grad()));
    }
    r.three.synchronize();
    return all;
  });
}

TEST(StreamsOfABackward, CallbacksSeeGradientsThatAreReady) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    Tensors all;
    GradManager gm;
    gm.attach({x, w}, [&](const Tensor&, const Tensor& grad) {
      all.push_back(raw::clone(grad));
      return grad * 3;
    });
    auto recording = gm.record();
    const Tensor a = r.on(r.one, [&] { return late(x * w); });
    const Tensor b = r.on(r.two, [&] { return late(square(a)); });
    gm.backward(sum(b));
    all.push_back(raw::clone(x.grad()));
    all.push_back(raw::clone(w.grad()));
    return all;
  });
}

TEST(StreamsOfABackward, TheCallerIsOnAnotherStream) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor a = late(x * w), y = square(a);
    const StreamScope scope(r.three);
    delay(r.device);
    const Tensor dy = r.numbers(3);
    gm.backward(y, dy);
    const Tensors all = seen(x.grad(), w.grad());
    r.three.synchronize();  // the default stream reads the values
    return all;
  });
}

TEST(StreamsOfABackward, TargetsWithinTheGraph) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor a = r.on(r.one, [&] { return late(x * w); });
    const Tensor b = r.on(r.two, [&] { return late(square(a)); });
    const Tensors grads = autograd::grad(TensorList(sum(b * a)), Tensors{a, w});
    return seen(grads[0], grads[1]);
  });
}

// a's rule does not run, but its gradient is summed on its stream, behind the two that make the terms.
TEST(StreamsOfABackward, SumsForATargetWhoseRuleDoesNotRun) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor a = r.on(r.one, [&] { return late(x * w); });
    const Tensor b = r.on(r.two, [&] { return late(square(a)); });
    const Tensor c = r.on(r.three, [&] { return late(a * w); });
    const Tensors grads = autograd::grad(TensorList(sum(b + c)), Tensors{a});
    return seen(grads[0]);
  });
}

// The first part ends at a value within the graph; the second goes on from there.
TEST(StreamsOfABackward, InTwoPartsFromAValueWithinTheGraph) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor h = r.on(r.one, [&] { return late(x * w); });
    gm.attach(h);
    const Tensor b = r.on(r.two, [&] { return late(square(h)); });
    recording.backward_inputs(h, sum(b));
    recording.backward_weights();
    return seen(h.grad(), x.grad(), w.grad());
  });
}

// The second part runs on another stream than the first. `h` leads to an input: its gradient is there after
// the first part, and is delivered by the second.
TEST(StreamsOfABackward, InTwoParts) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor h = x * w;
    gm.attach(h);
    const Tensor a = r.on(r.one, [&] { return late(square(h)); });
    const Tensor b = r.on(r.two, [&] { return late(a * w); });
    recording.backward_inputs(x, sum(b));
    Tensors all = seen(x.grad());
    {
      const StreamScope scope(r.three);
      recording.backward_weights();
      all.push_back(raw::clone(h.grad()));
      all.push_back(raw::clone(w.grad()));
    }
    r.three.synchronize();
    return all;
  });
}

// One rule computes both input gradients. That of the second part is kept until then, on a device that the
// first part does not use otherwise.
struct ToOther : autograd::Function {
  explicit ToOther(Device to) : to(to) {}
  Tensors forward(const Tensors& xs) override {
    return {raw::clone(raw::to(xs[0], to)), raw::clone(raw::to(xs[1], to))};
  }
  Tensors backward(Tensors dys) override {
    delay(dys[0].device());
    return {dys[0], raw::to(dys[1], from)};
  }
  Device to, from;
};

TEST(StreamsOfABackward, InTwoPartsOnTwoDevices) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = raw::to(r.numbers(1), r.other), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const auto rule = std::make_shared<ToOther>(r.other);
    rule->from = r.device;
    const Tensor v = r.on(r.one, [&] { return square(w); });
    const Tensors moved = autograd::apply(rule, {square(x), v});
    recording.backward_inputs(x, sum(late(moved[0] * moved[1])));
    Tensors all = seen(x.grad());
    {
      const StreamScope scope(r.three);
      recording.backward_weights();
      all.push_back(raw::clone(w.grad()));
    }
    r.three.synchronize();
    return all;
  });
}

TEST(StreamsOfABackward, Checkpoints) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const auto f = [&](const Tensor& v) {
      return r.on(r.one, [&] { return late(square(v)); }) + r.on(r.two, [&] { return late(v * w); });
    };
    const Tensor y = r.on(r.three, [&] { return autograd::checkpoint(f, x); });
    gm.backward(sum(y * x));
    return seen(x.grad(), w.grad());
  });
}

TEST(StreamsOfABackward, GradientsOfGradients) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach(w);
    auto recording = gm.record();
    const auto f = [&](const Tensor& v) {
      const Tensor a = r.on(r.one, [&] { return late(square(v) * w); });
      return sum(r.on(r.two, [&] { return late(a * v); }));
    };
    const Tensor g = autograd::grad(f, x);
    gm.backward(sum(square(g)));
    return seen(g, w.grad());
  });
}

// Each recording has streams of its own, and both add to one gradient.
TEST(StreamsOfABackward, RecordingsInFlight) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor w = r.numbers(1);
    GradManager gm;
    gm.attach(w);
    std::vector<std::pair<Recording, Tensor>> in_flight;
    for (const Stream& stream : {r.one, r.two}) {
      Recording recording = gm.record();
      Tensor loss = r.on(stream, [&] { return sum(late(square(w))); });
      in_flight.emplace_back(std::move(recording).pause(), loss);
    }
    for (auto& [recording, loss] : in_flight) {
      recording.resume();
      const Tensor more = r.on(r.three, [&] { return late(loss * 2); });
      recording.backward(more);
    }
    return seen(w.grad());
  });
}

// The rule of square reads its gradient on another stream while that of relu could overwrite it.
TEST(StreamsOfABackward, BuffersThatOtherStreamsReadAreNotReused) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Tensor a = relu(x);
    const Tensor b = r.on(r.two, [&] { return square(w); });
    gm.backward(sum((a + b) * r.numbers(3)));
    return seen(x.grad(), w.grad());
  });
}

// Its backward copies its gradient into `to` and returns none.
struct Spy : autograd::Function {
  explicit Spy(Tensor to) : to(std::move(to)) {}
  Tensors forward(const Tensors& xs) override { return {xs[0] * 1}; }
  Tensors backward(Tensors dys) override {
    delay(to.device());
    raw::copy_(to, dys[0]);
    return {Tensor()};
  }
  Tensor to;
};

TEST(StreamsOfABackward, AfterwardTheCallerSeesAllThatRulesHaveDone) {
  enum Part { kWhole, kFirst, kRest };
  for (const Part part : {kWhole, kFirst, kRest})
    expect_the_same_on_streams([part](const Round& r) {
      const Tensor w = r.numbers(1), v = r.numbers(2), noted = r.numbers(3);
      GradManager gm;
      gm.attach({w, v});
      auto recording = gm.record();
      const Tensor a = r.on(r.one, [&] { return autograd::apply(std::make_shared<Spy>(noted), {w})[0]; });
      const Tensor loss = sum(a * 2) + sum(v);
      if (part == kWhole)
        recording.backward(loss);
      else
        recording.backward_inputs(part == kFirst ? w : v, loss);
      if (part == kRest) recording.backward_weights();
      return seen(noted);
    });
}

TEST(StreamsOfABackward, OnTwoDevices) {
  expect_the_same_on_streams([](const Round& r) {
    const Tensor x = r.numbers(1), w = r.numbers(2);
    GradManager gm;
    gm.attach({x, w});
    auto recording = gm.record();
    const Stream there = Stream::create(r.other);
    const Tensor a = r.on(r.one, [&] {
      const Tensor b = late(x * w);
      return r.on(there, [&] { return late(square(to(b, r.other))); });
    });
    const Tensor c = r.on(r.two, [&] { return late(to(a, r.device) * w); });
    gm.backward(sum(c));
    return seen(x.grad(), w.grad());
  });
}

}  // namespace
}  // namespace gradus
