// Tests that a program with missing synchronization computes wrong results in many of 100 pseudo-random
// orders of the emulated streams, and a correct program in none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace {

using gradus::cuda::emulated::set_seed;

constexpr int kOrders = 100;
constexpr size_t kBytes = 64;

struct Mistake {
  bool no_event = false;     // the second stream does not wait for the first
  bool reused = false;       // the first stream overwrites the memory before the second has read it
  bool overwritten = false;  // the source in pinned memory changes before it is read
  bool early = false;        // the result is read before it is there
};

// Copies host memory to the device on one stream, and back on another. Returns whether the result is correct.
bool is_right(const Mistake& mistake, bool pinned = true) {
  cudaStream_t in, out;
  cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking);
  cudaEvent_t event;
  cudaEventCreate(&event);
  void *a, *b, *from = nullptr, *to;
  std::array<char, kBytes> pageable;
  cudaMalloc(&a, kBytes);
  cudaMalloc(&b, kBytes);
  cudaMallocHost(&to, kBytes);
  if (pinned)
    cudaMallocHost(&from, kBytes);
  else
    from = pageable.data();
  auto* const source = static_cast<char*>(from);
  auto* const target = static_cast<char*>(to);
  for (size_t i = 0; i < kBytes; ++i) source[i] = char(i + 1), target[i] = 0;

  cudaMemcpyAsync(a, from, kBytes, cudaMemcpyDefault, in);
  if (mistake.overwritten) source[7] = 77;
  cudaEventRecord(event, in);
  if (!mistake.no_event) cudaStreamWaitEvent(out, event, 0);
  cudaMemcpyAsync(b, a, kBytes, cudaMemcpyDefault, out);
  if (mistake.reused) cudaMemsetAsync(a, 0, kBytes, in);
  cudaMemcpyAsync(to, b, kBytes, cudaMemcpyDefault, out);
  if (!mistake.early) cudaStreamSynchronize(out);
  bool right = true;
  for (size_t i = 0; i < kBytes; ++i) right = right && target[i] == char(i + 1);
  cudaDeviceSynchronize();

  cudaEventDestroy(event);
  cudaStreamDestroy(in);
  cudaStreamDestroy(out);
  cudaFree(a);
  cudaFree(b);
  cudaFreeHost(to);
  if (pinned) cudaFreeHost(from);
  return right;
}

// Returns in how many orders the result is wrong.
int wrong_in(const Mistake& mistake, bool pinned = true) {
  int wrong = 0;
  for (uint64_t seed = 1; seed <= kOrders; ++seed) {
    set_seed(seed);
    wrong += !is_right(mistake, pinned);
  }
  return wrong;
}

TEST(EmulatedStreams, ARightProgramIsRightInEveryOrder) { EXPECT_EQ(wrong_in({}), 0); }

TEST(EmulatedStreams, MistakesShowInManyOrders) {
  EXPECT_GE(wrong_in({.no_event = true}), kOrders / 4);
  EXPECT_GE(wrong_in({.reused = true}), kOrders / 4);
  EXPECT_GE(wrong_in({.overwritten = true}), kOrders / 2);
  EXPECT_GE(wrong_in({.early = true}), kOrders / 2);
}

TEST(EmulatedStreams, ASmallPageableSourceIsReadAtOnce) {
  EXPECT_EQ(wrong_in({.overwritten = true}, false), 0);
}

// Returns whether work on `second` waits for earlier work on `first` in all of 20 orders. The expectations
// below were recorded on an H100.
bool waits(cudaStream_t first, cudaStream_t second) {
  bool waited = true;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    set_seed(seed);
    cudaEvent_t e, f;
    cudaEventCreate(&e);
    cudaEventCreate(&f);
    static int done;
    done = 0;
    for (int i = 0; i < 5; ++i)
      cudaLaunchHostFunc(
          first, [](void*) { ++done; }, nullptr);
    cudaEventRecord(f, second);
    cudaEventSynchronize(f);
    waited = waited && done == 5;
    cudaDeviceSynchronize();
    cudaEventDestroy(e);
    cudaEventDestroy(f);
  }
  return waited;
}

TEST(EmulatedStreams, TheLegacyStreamWaitsForBlockingStreamsAndTheyForIt) {
  cudaStream_t blocking, other, beside;
  cudaStreamCreate(&blocking);
  cudaStreamCreate(&other);
  cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking);
  EXPECT_TRUE(waits(blocking, nullptr));
  EXPECT_TRUE(waits(nullptr, blocking));
  EXPECT_FALSE(waits(beside, nullptr));
  EXPECT_FALSE(waits(nullptr, beside));
  EXPECT_FALSE(waits(blocking, other));
  EXPECT_TRUE(waits(cudaStreamPerThread, nullptr));
  EXPECT_FALSE(waits(beside, cudaStreamPerThread));
  for (const cudaStream_t s : {blocking, other, beside}) cudaStreamDestroy(s);
}

// As recorded, a program on a real device crashes in such a call.
TEST(EmulatedStreams, ACallWithADestroyedOneIsAFault) {
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  gradus::cuda::emulated::FaultScope faults;
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_TRUE(faults.take().empty());
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(faults.take().size(), 1u);
}

}  // namespace
