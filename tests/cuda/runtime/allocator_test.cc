// The caching allocator of CUDA devices on an emulated device of 64 MiB: reuse, splitting and merging of
// blocks, use by several streams, out of memory.
#include "gradus/tensor/runtime/device_allocator.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/memory.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

using internal::DeviceAllocator;

const Device kCuda = Device::parse("cuda:0");
constexpr int64_t kKiB = int64_t{1} << 10, kMiB = int64_t{1} << 20;

[[maybe_unused]] const bool is_small = (cuda::emulated::set_devices(2, size_t(64 * kMiB)), true);

Tensor bytes(int64_t n) { return empty({n}, {DType::kU8, kCuda}); }

class CudaAllocator : public testing::Test {
 protected:
  CudaAllocator() { clear(); }
  // Each test leaves nothing behind, neither with the allocator nor on the device.
  ~CudaAllocator() override {
    clear();
    EXPECT_EQ(memory_stats(kCuda).live_bytes, 0);
    EXPECT_EQ(memory_stats(kCuda).cached_bytes, 0);
    EXPECT_EQ(cuda::emulated::memory_of(0)->blocks(), 0u);
  }
  static void clear() {
    synchronize(kCuda);
    empty_cache(kCuda);
    reset_peak_memory(kCuda);
  }
  int64_t system_calls() const { return memory_stats(kCuda).system_calls; }
};

TEST_F(CudaAllocator, AFreedBlockIsUsedAgainOnItsStream) {
  const void* const first = bytes(1000).raw_ptr();
  const int64_t calls = system_calls();
  const Tensor again = bytes(1000);
  EXPECT_EQ(again.raw_ptr(), first);
  EXPECT_EQ(system_calls(), calls);
  EXPECT_EQ(memory_stats(kCuda).live_bytes, 1024);
  EXPECT_EQ(memory_stats(kCuda).cached_bytes, 2 * kMiB - 1024);
}

TEST_F(CudaAllocator, BlocksAreCutAndJoined) {
  std::vector<Tensor> small;
  for (int i = 0; i < 16; ++i) small.push_back(bytes(128 * kKiB));  // fill a segment of 2 MiB
  EXPECT_EQ(cuda::emulated::memory_of(0)->blocks(), 1u);
  for (size_t i = 1; i < small.size(); ++i)
    EXPECT_EQ(static_cast<char*>(small[i].raw_ptr()) - static_cast<char*>(small[i - 1].raw_ptr()),
              128 * kKiB);
  const void* const second = small[1].raw_ptr();
  small[1] = {}, small[3] = {}, small[2] = {};  // the last one joins its neighbors
  const Tensor three = bytes(384 * kKiB);
  EXPECT_EQ(three.raw_ptr(), second);
  EXPECT_EQ(cuda::emulated::memory_of(0)->blocks(), 1u);

  const Tensor large = bytes(6 * kMiB), other = bytes(7 * kMiB);  // of one segment of 20 MiB
  EXPECT_EQ(static_cast<char*>(other.raw_ptr()) - static_cast<char*>(large.raw_ptr()), 6 * kMiB);
  EXPECT_EQ(cuda::emulated::memory_of(0)->blocks(), 2u);
}

TEST_F(CudaAllocator, OutOfMemoryEmptiesTheCacheThenSaysWhatIsHeld) {
  { const Tensor a = bytes(20 * kMiB), b = bytes(20 * kMiB); }
  EXPECT_EQ(memory_stats(kCuda).cached_bytes, 40 * kMiB);
  Tensor held = bytes(50 * kMiB);  // fits only where both cached segments are gone
  EXPECT_EQ(memory_stats(kCuda).cached_bytes, 0);
  Tensor more;
  {
    const OpCall call("conv2d");
    more = bytes(5 * kMiB);
  }
  try {
    bytes(20 * kMiB);
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    const std::string text = e.what();
    for (const char* part : {"out of memory on cuda:0", "asked for 20971520 bytes", "live 55.0 MiB",
                             "held by outside of ops: 52428800 bytes in 1 block", "conv2d: 5242880 bytes"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  held = {};
  const Tensor fits = zeros({10 * kMiB}, {DType::kU8, kCuda});  // the device goes on
  EXPECT_EQ(raw::to(fits, kCPU).data<uint8_t>()[12345], 0);
}

TEST_F(CudaAllocator, CountsAndPeaks) {
  const PeakMemory outer(kCuda);
  {
    const PeakMemory inner(kCuda);
    const Tensor a = bytes(4 * kMiB), b = bytes(kMiB);
    EXPECT_EQ(inner.added_bytes(), 5 * kMiB);
  }
  EXPECT_EQ(outer.bytes(), 5 * kMiB);
  EXPECT_EQ(memory_stats(kCuda).peak_bytes, 5 * kMiB);
  EXPECT_NE(memory_summary().find("cuda:0"), std::string::npos);
}

// The first KiB of a block.
Tensor begin_of(const Tensor& x) { return view_as_strided(x, {kKiB}, {1}, 0); }

// Frees a block that a second stream reads, and allocates as much on its own stream. Returns whether the read
// data is right. told: whether the allocator learns of the second stream; event_fails: its event cannot be
// recorded.
bool is_right(int64_t size, bool told, bool event_fails = false) {
  const Stream side = Stream::create(kCuda);
  Tensor x = bytes(size);
  raw::fill_(begin_of(x), 1);
  side.wait(Event::record(current_stream(kCuda)));
  Tensor y;
  {
    const StreamScope scope(side);
    y = bytes(kKiB);
    if (told) {
      raw::copy_(y, begin_of(x));
    } else {  // bypasses the kernel slot, which records the stream
      cudaMemcpyAsync(y.raw_ptr(), x.raw_ptr(), size_t(y.nbytes()), cudaMemcpyDefault,
                      static_cast<cudaStream_t>(internal::native_stream(side)->handle()));
    }
  }
  if (event_fails) cuda::emulated::fail_call(0, cudaErrorInvalidValue);
  x = {};
  const Tensor z = bytes(size);
  raw::fill_(begin_of(z), 2);
  side.synchronize();
  const StreamScope scope(side);
  return y.to_vector<int32_t>() == std::vector<int32_t>(kKiB, 1);
}

// Of 40 MiB the second tensor gets the same block, after it was read: there is no room for another.
TEST_F(CudaAllocator, ABlockThatOtherStreamsUseWaitsForThem) {
  for (const int64_t size : {16 * kKiB, 40 * kMiB}) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 30; ++seed) {
      cuda::emulated::set_seed(seed);
      EXPECT_TRUE(is_right(size, true)) << "seed " << seed;
      EXPECT_TRUE(is_right(size, true, true)) << "seed " << seed;
      wrong += !is_right(size, false);
      synchronize(kCuda);
    }
    EXPECT_GE(wrong, 5) << "the test would not notice";
    clear();
  }
}

// A block used by a slow stream does not delay the reuse of blocks used by a fast one and freed later.
TEST_F(CudaAllocator, AStreamThatIsBehindKeepsNoBlocksOfOthers) {
  const Stream slow = Stream::create(kCuda), fast = Stream::create(kCuda);
  Tensor x = bytes(2 * kMiB), y = bytes(3 * kMiB), both = bytes(4 * kMiB);
  const void *const of_slow = x.raw_ptr(), *const of_fast = y.raw_ptr();  // of one segment
  const auto use = [](const Stream& stream, const Tensor& t) {
    DeviceAllocator::of(kCuda).record_stream(t.raw_ptr(), internal::native_stream(stream));
  };
  use(slow, x), use(fast, y), use(slow, both), use(fast, both);
  const auto native = internal::native_stream(slow);
  const internal::NativeEvent event(native->runtime(), 0);
  for (int i = 0; i < 300; ++i) native->record(event);
  x = {}, both = {}, y = {};
  fast.synchronize();
  ASSERT_FALSE(native->is_idle());
  EXPECT_EQ(bytes(3 * kMiB).raw_ptr(), of_fast);
  slow.synchronize();
  EXPECT_EQ(bytes(9 * kMiB).raw_ptr(), of_slow);  // the three are one block again
}

TEST_F(CudaAllocator, AnotherStreamGetsASegmentWhenItsOwnIsIdleOrMemoryIsShort) {
  const Stream side = Stream::create(kCuda);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cuda::emulated::set_seed(seed);
    clear();
    Tensor x = bytes(40 * kMiB);
    raw::fill_(begin_of(x), 1);
    const Tensor kept = raw::clone(begin_of(x));  // queued: may run after what another stream does now
    x = {};
    const StreamScope scope(side);
    const Tensor z = bytes(40 * kMiB);  // 2 * 40 MiB have no room
    raw::fill_(begin_of(z), 2);
    EXPECT_EQ(cuda::emulated::memory_of(0)->used(), size_t(42 * kMiB)) << "seed " << seed;
    synchronize(kCuda);
    EXPECT_EQ(raw::to(kept, kCPU).to_vector<int32_t>(), std::vector<int32_t>(kKiB, 1)) << "seed " << seed;
  }
}

// A sanitizer would report a read of the destroyed stream.
TEST_F(CudaAllocator, AsksNoDestroyedStream) {
  {
    const Stream side = Stream::create(kCuda);
    const StreamScope scope(side);
    bytes(kMiB);
    side.synchronize();
  }
  const Tensor moved = bytes(kMiB);  // in the segment that kept the stream
  const Tensor other = bytes(30 * kMiB);
  empty_cache(kCuda);
}

TEST_F(CudaAllocator, KeepsNothingWhenTold) {
  DeviceAllocator& allocator = DeviceAllocator::of(kCuda);
  allocator.disable_caching(true);
  {
    const Tensor x = bytes(1001), y = bytes(3);
    EXPECT_EQ(cuda::emulated::memory_of(0)->blocks(), 2u);
    EXPECT_EQ(cuda::emulated::memory_of(0)->used(), 1004u);
  }
  EXPECT_EQ(cuda::emulated::memory_of(0)->blocks(), 0u);
  allocator.disable_caching(false);
}

}  // namespace
}  // namespace gradus
