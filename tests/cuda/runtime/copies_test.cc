// Copies between the host, asynchronous CPU devices and two emulated CUDA devices, in any layout and dtype:
// values, order with other work of both streams, pinned staging, failing calls.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gradus/tensor/cuda/runtime/error.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/pinned_memory.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/order.h"

namespace gradus {
namespace {

const Device kCuda = Device::parse("cuda:0");
// cuda:1, or cuda:0 if it is the only one.
Device second() {
  const bool is_there = internal::find_device_runtime(DeviceType::kCUDA)->device_count() > 1;
  return {DeviceType::kCUDA, int16_t(is_there)};
}
const Device kWorker = Device::parse("cpu:1");
const Device kMeta{DeviceType::kMeta};

Tensor numbers(const Shape& shape, DType dtype = DType::kF32) {
  return raw::to(
      view_as_strided(arange(shape.product(), {.dtype = DType::kF64}), shape, row_major_strides(shape), 0),
      dtype);
}

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

TEST(CudaCopies, EveryDeviceReachesEveryOther) {
  const Tensor x = numbers({3, 5, 7});
  for (const Device a : {kCPU, kWorker, kCuda, second()}) {
    for (const Device b : {kCPU, kWorker, kCuda, second()}) {
      const Tensor there = raw::to(raw::to(x, a), b);
      EXPECT_EQ(there.device(), b);
      EXPECT_EQ(values(there), values(x)) << to_string(a) << " to " << to_string(b);
    }
    EXPECT_EQ(raw::to(raw::to(x, a), kMeta).shape(), x.shape());
  }
}

TEST(CudaCopies, LayoutsAndDTypes) {
  const Tensor image = numbers({2, 3, 4, 5});
  const Tensor last = raw::to(raw::channels_last(image), kCuda);
  EXPECT_TRUE(last.is_channels_last());
  EXPECT_EQ(values(last), values(image));
  EXPECT_EQ(values(raw::contiguous(last)), values(image));
  EXPECT_EQ(values(raw::to(last, kCPU)), values(image));
  for (const DType t : {DType::kF64, DType::kF16, DType::kBF16, DType::kI64, DType::kI8, DType::kU8}) {
    const Tensor on_cpu = raw::to(image, t), on_cuda = raw::to(raw::to(image, kCuda), t);
    EXPECT_EQ(on_cuda.dtype(), t);
    EXPECT_EQ(values(on_cuda), values(on_cpu)) << name_of(t);
    EXPECT_EQ(values(raw::to(on_cuda, kCPU)), values(on_cpu)) << name_of(t);
  }
  const Tensor x = raw::to(numbers({4, 6}), kCuda);
  const Tensor part = view_as_strided(x, {2, 3}, {12, 2}, 1);  // every other element of every other row
  const std::vector<double> want = {1, 3, 5, 13, 15, 17};
  EXPECT_EQ(values(part), want);
  EXPECT_EQ(values(raw::to(part, kCPU)), want);
  EXPECT_EQ(values(raw::to(part, second())), want);
  EXPECT_EQ(values(raw::clone(part)), want);
}

TEST(CudaCopies, IntoPartsAndByBroadcasting) {
  for (const Device from : {kCPU, kWorker, kCuda, second()}) {
    for (const Device to : {kCPU, kWorker, kCuda}) {
      const Tensor x = raw::to(zeros({3, 4}), to);
      const Tensor column = view_as_strided(x, {3}, {4}, 1);
      raw::copy_(column, raw::to(numbers({3}), from));
      raw::copy_(view_as_strided(x, {3, 2}, {4, 1}, 2), raw::to(numbers({2}), from));
      EXPECT_EQ(values(x), (std::vector<double>{0, 0, 0, 1, 0, 1, 0, 1, 0, 2, 0, 1}))
          << to_string(from) << " to " << to_string(to);
    }
  }
}

TEST(CudaCopies, ValuesReachTheHost) {
  const Tensor x = tensor(std::vector<float>{1, 2.5, -3}, {3}, kCuda);
  EXPECT_EQ(values(x), (std::vector<double>{1, 2.5, -3}));
  EXPECT_EQ(scalar(7, {DType::kI64, kCuda}).item<int64_t>(), 7);
  EXPECT_EQ(scalar(0.5, {DType::kBF16, kCuda}).item<double>(), 0.5);
  EXPECT_EQ(view_as_strided(x, {}, {}, 2).item<float>(), -3);
  EXPECT_EQ(to_string(x), "[ 1.0000,  2.5000, -3.0000]\nf32[3] cuda:0");
  std::ostringstream out;
  out << raw::to(numbers({2, 2}), kCuda);
  EXPECT_EQ(out.str(), to_string(numbers({2, 2})).substr(0, out.str().find('\n', 12)) + "\nf32[2,2] cuda:0");
  EXPECT_THROW(x.data<float>(), DeviceError);
  EXPECT_TRUE(values(empty({0, 3}, {.device = kCuda})).empty());
}

TEST(CudaCopies, FillsAndSequences) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32,
                        DType::kI16, DType::kI8, DType::kU8, DType::kBool}) {
    const Number value = t == DType::kBool ? Number(true) : Number(3);
    EXPECT_EQ(values(full({17}, value, {t, kCuda})), values(full({17}, value, {t}))) << name_of(t);
    if (t == DType::kBool) continue;
    EXPECT_EQ(values(arange(1, 20, 3, {t, kCuda})), values(arange(1, 20, 3, {t}))) << name_of(t);
    EXPECT_EQ(values(linspace(0, 8, 5, {t, kCuda})), values(linspace(0, 8, 5, {t}))) << name_of(t);
  }
  const Tensor x = zeros({2, 3, 4}, {.device = kCuda});
  raw::fill_(view_as_strided(x, {2, 3}, {12, 4}, 2), 5);
  raw::fill_(view_as_strided(x, {9}, {0}, 1), 6);  // nine times the same place
  const auto v = values(x);
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(v[i], i == 1 ? 6 : i % 4 == 2 ? 5 : 0) << i;
  EXPECT_EQ(values(eye(3, -1, {.device = kCuda})), values(eye(3)));
}

// The emulator runs queued work late, and in another order for each seed.
TEST(CudaCopies, AreInTheOrderOfBothStreams) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cuda::emulated::set_seed(seed);
    Tensor x = full({1000}, 1, {.device = kCuda});
    const Tensor y = raw::clone(raw::to(x, second())), z = raw::to(x, kCPU);
    raw::fill_(x, 2);
    raw::copy_(x, raw::to(y, kCuda));
    raw::fill_(y, 3);
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 1)) << seed;
    EXPECT_EQ(z.to_vector<float>(), std::vector<float>(1000, 1)) << seed;
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1000, 3)) << seed;
    // A copy into a block that its device's stream still reads.
    Tensor old = full({1000}, 6, {.device = second()});
    const Tensor kept = raw::clone(old);
    old = {};
    const Tensor reused = raw::to(x, second());
    EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(1000, 6)) << seed;
    EXPECT_EQ(reused.to_vector<float>(), std::vector<float>(1000, 1)) << seed;
    Tensor host = full({1000}, 4);
    const Tensor w = raw::to(host, kCuda);
    raw::fill_(host, 5);  // pageable memory was read
    EXPECT_EQ(w.to_vector<float>(), std::vector<float>(1000, 4)) << seed;
  }
}

// The sources change before the device has run the copies.
TEST(CudaCopies, FromTheHostGoThroughPinnedMemory) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    cuda::emulated::set_seed(seed);
    synchronize(kCuda);
    cuda::HostCallScope calls;
    const Tensor host = empty({25'000});
    std::vector<Tensor> there;
    for (int i = 0; i < 100; ++i) {
      raw::fill_(host, i);
      there.push_back(raw::to(host, kCuda));
    }
    const cuda::HostCalls all = calls.total();
    EXPECT_EQ(all.pageable_copies, 0);
    EXPECT_EQ(all.copies_to_device, 100);
    EXPECT_EQ(all.bytes_to_device, 100 * 100'000);
    EXPECT_LE(all.waits, 100 - 64);  // there are 64 pinned blocks
    for (size_t i = 0; i < there.size(); ++i)
      EXPECT_EQ(there[i].to_vector<float>(), std::vector<float>(25'000, float(i))) << seed << ' ' << i;
  }
}

TEST(CudaCopies, LargeOnesGoInPieces) {
  const Tensor large = arange((int64_t(65) << 20) / 8 + 3, {.dtype = DType::kI64});
  if (internal::runtime_of(kCuda).properties(0).memory_bytes < large.nbytes()) GTEST_SKIP();
  cuda::HostCallScope calls;
  const Tensor back = raw::to(raw::to(large, kCuda), kCPU);
  EXPECT_EQ(std::memcmp(back.raw_ptr(), large.raw_ptr(), static_cast<size_t>(large.nbytes())), 0);
  EXPECT_EQ(calls.total().copies_to_device, 2);
  EXPECT_EQ(calls.total().copies_to_host, 1);
  EXPECT_EQ(calls.total().pageable_copies, 1);
}

TEST(CudaCopies, FromTheHostMayFail) {
  const Tensor x = numbers({3000});
  EXPECT_EQ(values(raw::to(x, kCuda)), values(x));
  const size_t pinned = internal::PinnedMemory::of(kCuda).blocks();
  for (int64_t n = 0; n < 12; ++n) {
    cuda::emulated::fail_call(n, cudaErrorInvalidValue);
    try {
      const Tensor there = raw::to(x, kCuda);
      cuda::emulated::fail_call(-1, cudaSuccess);
      EXPECT_EQ(values(there), values(x));
    } catch (const cuda::CudaError&) {
    }
    cuda::emulated::fail_call(-1, cudaSuccess);
    EXPECT_EQ(values(raw::to(x, kCuda)), values(x)) << "after a failure of call " << n;
  }
  for (const std::string call : {"cudaMemcpyAsync", "cudaEventRecord"}) {
    for (int i = 0; i < 5; ++i) {
      cuda::emulated::fail_call_of(call, 0, cudaErrorInvalidValue);
      try {
        raw::to(x, kCuda);
        ADD_FAILURE() << "no error of " << call;
      } catch (const cuda::CudaError& e) {
        EXPECT_NE(std::string(e.what()).find(call), std::string::npos) << e.what();
      }
      EXPECT_EQ(values(raw::to(x, kCuda)), values(x)) << "after a failure of " << call;
    }
  }
  EXPECT_EQ(internal::PinnedMemory::of(kCuda).blocks(), pinned) << "blocks are used again";
}

// The copy is queued when the wait of the destination's stream fails. The next owner of its block waits.
TEST(CudaCopies, BetweenDevicesMayFail) {
  if (second() == kCuda) GTEST_SKIP();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    cuda::emulated::set_seed(seed);
    const Tensor x = full({1000}, 1, {.device = kCuda});
    cuda::emulated::fail_call_of("cudaStreamWaitEvent", 1, cudaErrorInvalidValue);
    EXPECT_THROW(raw::to(x, second()), cuda::CudaError);
    const Tensor y = full({1000}, 2, {.device = second()});
    synchronize(kCuda);
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1000, 2)) << "seed " << seed;
  }
}

// The copy is queued on a side stream of the destination, which is dropped. What gets its block is written
// later.
TEST(CudaCopies, KeepTheDestinationsBlock) {
  const Device other_worker = Device::parse("cpu:2");
  for (const auto& [from, to] :
       {std::pair(kCuda, second()), std::pair(second(), kCuda), std::pair(kWorker, kCuda),
        std::pair(kCuda, kWorker), std::pair(kWorker, other_worker)}) {
    int wrong = 0;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
      cuda::emulated::set_seed(seed);
      const Tensor x = full({1000}, 1, {.device = from});
      Tensor y = empty({1000}, {.device = to});
      {
        const StreamScope scope(Stream::create(to));
        raw::copy_(y, x);
      }
      y = {};
      const Tensor z = full({1000}, 2, {.device = to});
      synchronize(from);
      wrong += values(z) != std::vector<double>(1000, 2);
    }
    EXPECT_EQ(wrong, 0) << "of 50 rounds, " << to_string(from) << " to " << to_string(to);
  }
}

TEST(CudaCopies, BetweenDevicesEnablePeerAccessOnce) {
  if (second() == kCuda) GTEST_SKIP();
  const Tensor x = full({3}, 1, {.device = kCuda});
  raw::to(x, second());
  cuda::emulated::take_calls();
  raw::to(x, second());
  const auto calls = cuda::emulated::take_calls();
  EXPECT_EQ(calls.count("cudaMemcpyPeerAsync"), 1u);
  EXPECT_EQ(calls.count("cudaDeviceCanAccessPeer"), 0u);
  EXPECT_EQ(calls.count("cudaDeviceEnablePeerAccess"), 0u);
  EXPECT_EQ(cudaSetDevice(kCuda.index), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(second().index, 0), cudaErrorPeerAccessAlreadyEnabled);
  EXPECT_EQ(cudaGetLastError(), cudaErrorPeerAccessAlreadyEnabled);
}

TEST(CudaCopies, WaitForAWorkersQueue) {
  const Tensor x = full({8}, 1, {.device = kWorker});
  Stream::of(kWorker).enqueue([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  raw::fill_(x, 2);
  EXPECT_EQ(raw::to(x, kCuda).to_vector<float>(), std::vector<float>(8, 2));
}

}  // namespace
}  // namespace gradus
