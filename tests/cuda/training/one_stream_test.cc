// A backward on the stream of its forward records and awaits no CUDA events. Counted by the emulator.
#include <gtest/gtest.h>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tools/cuda_emulator/call.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};

struct Events {
  int64_t recorded = 0, awaited = 0;
};
Events events_of_a_backward(const Stream& forward, const Stream& backward) {
  const Tensor x = ones({8, 4}, {.device = kCuda}), w = ones({4, 4}, {.device = kCuda});
  synchronize(kCuda);
  GradManager gm;
  gm.attach({x, w});
  auto recording = gm.record();
  Tensor loss;
  {
    const StreamScope scope(forward);
    loss = sum(relu(matmul(x, w)) + square(matmul(x, w)) * x);
  }
  backward.wait(Event::record(forward));
  const StreamScope scope(backward);
  cuda::emulated::take_calls();
  gm.backward(loss);
  auto calls = cuda::emulated::take_calls();
  return {calls["cudaEventRecord"], calls["cudaStreamWaitEvent"]};
}

TEST(BackwardOnOneStream, MakesNoEvents) {
  const Stream side = Stream::create(kCuda);
  for (const Stream& stream : {Stream::of(kCuda), side}) {
    const Events events = events_of_a_backward(stream, stream);
    EXPECT_EQ(events.recorded, 0);
    EXPECT_EQ(events.awaited, 0);
  }
  // The loss's, one for each gradient of x and of w (of two uses each, and x has a third), and one at the
  // end.
  EXPECT_EQ(events_of_a_backward(side, Stream::of(kCuda)).awaited, 7);
}

}  // namespace
}  // namespace gradus
