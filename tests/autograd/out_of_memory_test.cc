// operator new fails at each allocation of a training step in turn, and at all later ones. The caller gets an
// exception, the next step has the same gradients as before, and destructors work without allocating. Memory
// of tensors does not come from operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/allocator.h"
#include "gradus/tensor/runtime/parallel.h"

namespace {

constexpr int64_t kUnlimited = -1;
std::atomic<int64_t> left{kUnlimited};  // number of allocations that still succeed
std::atomic<int64_t> made{0};           // number of allocations so far

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++made;
  if (left == 0) throw std::bad_alloc();
  if (left > 0) --left;
  if (void* p = std::malloc(bytes ? bytes : 1)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++made;
  if (left == 0) return nullptr;
  if (left > 0) --left;
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }

namespace gradus {
namespace {

struct CountingCallback final : GradCallback {
  void begin(const std::vector<Tensor>&, const std::vector<bool>&) override {}
  std::optional<Tensor> ready(const Tensor&, const Tensor& grad) override { return grad; }
  std::vector<Delivery> finish() override {
    ++ended;
    return {};
  }
  void abandon(std::exception_ptr) noexcept override { ++ended; }
  int ended = 0;
};

class OutOfMemory : public testing::Test {
 protected:
  OutOfMemory() { set_num_threads(1); }

  // The tensors are large, since the allocator keeps large blocks in a tree, whose nodes it allocates.
  void step() {
    const Tensor w = weight;  // shares weight's gradient
    w.set_grad({});
    GradManager gm;
    gm.attach(w, callback);
    auto recording = gm.record();
    const Tensor h = relu(w * 2 + 1), parts = cat({h, tanh(w)}, 0);
    gm.backward(mean(square(parts)) + sum(softmax(narrow(w, 0, 0, 2), 1)));
  }

  const Tensor weight = full({600, 600}, 0.25);
  const std::shared_ptr<CountingCallback> callback = std::make_shared<CountingCallback>();
};

TEST_F(OutOfMemory, AtAnyAllocationOfAStepIsAnExceptionAndTheNextStepIsRight) {
  step();
  const std::vector<float> right = weight.grad().to_vector<float>();
  const int64_t before = made, live = memory_stats().live_bytes;
  empty_cache();
  step();
  const int64_t allocations = made - before;
  ASSERT_GT(allocations, 50);
  int thrown = 0;
  for (int64_t k = 0; k < allocations; ++k) {
    empty_cache();
    callback->ended = 0;
    left = k;
    try {
      step();
    } catch (const std::bad_alloc&) {
      ++thrown;
    } catch (const Error&) {
      ++thrown;
    }
    left = kUnlimited;
    EXPECT_LE(callback->ended, 1) << "allocation " << k;  // 0: no recording was opened
    if (k % 16 == 0) {
      step();
      ASSERT_EQ(weight.grad().to_vector<float>(), right) << "after allocation " << k;
    }
  }
  EXPECT_GT(thrown, 50);
  step();
  EXPECT_EQ(weight.grad().to_vector<float>(), right);
  EXPECT_EQ(memory_stats().live_bytes, live) << "blocks were lost on the way";
}

// As when std::bad_alloc unwinds the scope of a recording.
TEST_F(OutOfMemory, ARecordingEndsWithoutAnyMemory) {
  GradManager gm;
  gm.attach(weight, callback);
  Tensor kept;
  {
    auto recording = gm.record();
    kept = sum(relu(weight * 2));
    left = 0;
  }
  left = kUnlimited;
  EXPECT_EQ(callback->ended, 1);
  auto recording = gm.record();
  gm.backward(sum(weight * 3));
  EXPECT_EQ(weight.grad().to_vector<float>()[0], 3);
}

}  // namespace
}  // namespace gradus
