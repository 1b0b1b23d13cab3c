// Recordings on several threads: ranks as threads, workers with their caller's context, further devices, and
// graphs that are dropped on another thread than the one that recorded them. Meant for ThreadSanitizer.
#include <atomic>
#include <thread>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

// cpu:1 and cpu:2 are logical CPU devices: a worker thread of each runs the kernels queued on it.
const Device kOther = Device::parse("cpu:1");

template <class F> void on_threads(int n, F f) {
  std::vector<std::thread> threads;
  for (int t = 0; t < n; ++t) threads.emplace_back([&f, t] { f(t); });
  for (auto& t : threads) t.join();
}

// A convolution, a product and a loss. Threads share what these ops cache with the weights.
Tensor loss_of(const Tensor& x, const Tensor& kernel, const Tensor& weight) {
  const Tensor h = relu(conv2d(x, kernel));
  return mean(square(matmul(flatten(h, 1), weight)));
}

TEST(Threads, RanksWithWeightsOfTheirOwnGetTheSameGradients) {
  const Tensor x = random_tensor({2, 3, 8, 8});
  std::vector<std::vector<float>> grads(4);
  on_threads(4, [&](int rank) {
    set_num_threads(1);
    Tensor kernel = random_tensor({4, 3, 3, 3}, DType::kF32, 2),
           weight = random_tensor({4 * 36, 5}, DType::kF32, 3);
    GradManager gm;
    gm.attach({kernel, weight});
    for (int step = 0; step < 3; ++step) {
      auto recording = gm.record();
      gm.backward(loss_of(x, kernel, weight));
    }
    grads[rank] = kernel.grad().to_vector<float>();
  });
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(grads[rank], grads[0]);
}

TEST(Threads, ThatOnlyReadWeightsMayShareThem) {
  const Tensor kernel = random_tensor({4, 3, 3, 3}, DType::kF32, 2),
               weight = random_tensor({4 * 36, 5}, DType::kF32, 3);
  const Tensor x = random_tensor({2, 3, 8, 8});
  const float want = loss_of(x, kernel, weight).item<float>();
  on_threads(4, [&](int) {
    set_num_threads(1);
    for (int i = 0; i < 20; ++i) EXPECT_NEAR(loss_of(x, kernel, weight).item<float>(), want, 1e-5);
  });
}

TEST(Threads, WithTheirCallersContextRecordIntoItsRecording) {
  Tensor w = random_tensor({8, 8});
  GradManager gm;
  gm.attach(w);
  const auto recording = gm.record();
  std::vector<Tensor> parts(4);
  const Context caller = Context::current().snapshot();
  on_threads(4, [&](int t) {
    Context context = caller;
    const ContextScope scope(context);
    Tensor h = w;
    for (int i = 0; i < 50; ++i) h = add(mul(h, 0.5), w);
    parts[t] = sum(h);
  });
  gm.backward(parts);
  // In each of the four parts w counts 1 + 1/2 + 1/4 + ...
  for (float g : w.grad().to_vector<float>()) ASSERT_NEAR(g, 8, 1e-4);
}

TEST(Threads, MayDropAGraphWhileItsRecordingEnds) {
  for (int round = 0; round < 30; ++round) {
    Tensor w = tensor({1.f, 2.f});
    GradManager gm;
    gm.attach(w);
    auto recording = gm.record();
    Tensor y = w;
    for (int i = 0; i < 200; ++i) y = mul(y, 1.5);
    std::atomic<bool> start{false};
    std::thread other([&start, y = std::move(y)]() mutable {
      while (!start) {
      }
      y = Tensor();
    });
    start = true;
    gm.release();
    other.join();
  }
}

TEST(Threads, MayDropAnAttachedTensorWhileTheManagerRecords) {
  GradManager gm;
  for (int round = 0; round < 100; ++round) {
    Tensor x = tensor({1.f});
    gm.attach(x);
    std::atomic<bool> start{false};
    std::thread other([&start, x = std::move(x)]() mutable {
      while (!start) {
      }
      x = Tensor();
    });
    start = true;
    for (const Tensor& alive : gm.attached_tensors()) ASSERT_EQ(alive.numel(), 1);
    auto recording = gm.record();
    other.join();
  }
  EXPECT_TRUE(gm.attached_tensors().empty());
}

TEST(Threads, AGraphOnAStreamThatIsDroppedWithItEndsQuietly) {
  std::atomic<bool> open{false};
  {
    const Stream s = Stream::create(kOther);
    const StreamScope scope(s);
    s.enqueue([&open] {
      while (!open) std::this_thread::yield();
    });
    Tensor x = empty({4}, {DType::kF32, kOther});
    GradManager gm;
    gm.attach(x);
    auto recording = gm.record();
    const Tensor y = mul(x, x);
  }
  // The queued kernel holds the last reference to the node, and the node to the stream.
  open = true;
  synchronize(kOther);
}

TEST(Threads, BackwardOnTwoDevicesGivesTheGradientsOfOne) {
  auto gradient = [](Device a, Device b) {
    Tensor w = to(random_tensor({16, 16}), a);
    GradManager gm;
    gm.attach(w);
    auto recording = gm.record();
    Tensor h = w;
    for (int i = 0; i < 10; ++i) {
      const Tensor weight = to(w, b), x = to(h, b);  // the order of recording, in which gradients are summed
      h = to(tanh(matmul(x, weight)), a);
    }
    gm.backward(mean(square(h)));
    return w.grad().to_vector<float>();
  };
  EXPECT_EQ(gradient(kOther, Device::parse("cpu:2")), gradient(kCPU, kCPU));
}

TEST(Threads, TwoRecordingsOfOneForwardEndAtOnce) {
  for (int round = 0; round < 50; ++round) {
    Tensor a = ones({1}), b = ones({1});
    GradManager gm_a, gm_b;
    gm_a.attach(a);
    gm_b.attach(b);
    Recording ra = gm_a.record(), rb = gm_b.record();
    Tensor y = a * b;
    for (int i = 0; i < 100; ++i) y = y * a + b;
    ra.pause();
    rb.pause();
    std::thread other([&] { ra.release(); });
    rb.release();
    other.join();
    EXPECT_FALSE(autograd::is_tracked(y));
  }
}

}  // namespace
}  // namespace gradus
