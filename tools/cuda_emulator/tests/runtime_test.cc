// Tests of the emulated CUDA runtime: statuses equal those of an H100, which ASK (record.h) looks up in
// cudart_answers.txt; injected failures; the emulator's own limits.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/grid.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/streams.h"
#include "record.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT

TEST(EmulatedRuntime, AnswersAsRecordedAboutMemory) {
  Record record("memory");
  void *p = nullptr, *q = nullptr;
  ASK(cudaMalloc(&p, 0));
  EXPECT_EQ(p, nullptr);
  ASK(cudaFree(p));
  ASK(cudaFree(nullptr));
  ASK(cudaMalloc(nullptr, 16));
  ASK(cudaMalloc(&p, size_t(1) << 50));
  ASK(cudaMalloc(&p, size_t(-1)));
  ASK(cudaMalloc(&p, size_t(int64_t(-4096))));
  ASK(cudaMalloc(&p, 1));
  ASK(cudaFree(static_cast<char*>(p) + 256));
  ASK(cudaFree(static_cast<char*>(p) + 1));
  ASK(cudaFree(p));
  ASK(cudaFree(p));
  ASK(cudaFree(reinterpret_cast<void*>(0x1234)));
  ASK(cudaFree(&p));
  ASK(cudaMallocHost(&q, 4096));
  ASK(cudaFree(q));
  ASK(cudaFreeHost(q));
  ASK(cudaFreeHost(q));
  ASK(cudaMalloc(&p, 4096));
  ASK(cudaFreeHost(p));
  ASK(cudaFree(p));
  ASK(cudaFreeHost(nullptr));
  ASK(cudaMallocHost(&q, 0));
  size_t free_bytes, total;
  ASK(cudaMemGetInfo(&free_bytes, &total));
  ASK(cudaMemGetInfo(nullptr, &total));
}

TEST(EmulatedRuntime, AnswersAsRecordedAboutCopies) {
  Record record("copies");
  void* made[3];
  cudaMalloc(&made[0], 4096);
  cudaMalloc(&made[1], 4096);
  cudaMallocHost(&made[2], 4096);
  char *const d = static_cast<char*>(made[0]), *const e = static_cast<char*>(made[1]),
              *const pinned = static_cast<char*>(made[2]);
  std::vector<char> host(1 << 20);
  char* const h = host.data();
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyDeviceToHost));
  ASK(cudaMemcpy(h, d, 4096, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyHostToHost));
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(h, h + 4096, 4096, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(h, h + 4096, 4096, cudaMemcpyHostToHost));
  ASK(cudaMemcpy(h, h + 4096, 4096, cudaMemcpyDefault));
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyDefault));
  ASK(cudaMemcpy(d, e, 4096, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d, pinned, 4096, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(pinned, d, 4096, cudaMemcpyHostToDevice));
#if !defined(__SANITIZE_ADDRESS__)  // sanitizers refuse values outside of an enum
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyKind(9)));
#endif
  ASK(cudaMemcpy(d, h, 0, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(nullptr, h, 0, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
  ASK(cudaMemcpy(nullptr, h, 16, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d, nullptr, 16, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d, nullptr, 16, cudaMemcpyDefault));
  ASK(cudaMemcpy(d, h, 4097, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d + 4000, h, 200, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(d, h, 1 << 20, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy(h, d, 1 << 20, cudaMemcpyDeviceToHost));
  ASK(cudaMemcpy(d, d + 100, 1000, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(d + 100, d, 1000, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(d, d, 1000, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpyAsync(d, h, 4096, cudaMemcpyHostToDevice, nullptr));
  ASK(cudaMemcpyAsync(d, pinned, 4096, cudaMemcpyHostToDevice, nullptr));
  ASK(cudaMemcpyAsync(h, d, 4096, cudaMemcpyDeviceToHost, nullptr));
  ASK(cudaMemcpyAsync(d, pinned, 4097, cudaMemcpyHostToDevice, nullptr));
  ASK(cudaDeviceSynchronize());
  ASK(cudaMemset(d, 1, 4096));
  ASK(cudaMemset(d, 1, 0));
  ASK(cudaMemset(nullptr, 1, 0));
  ASK(cudaMemset(nullptr, 1, 16));
  ASK(cudaMemset(h, 1, 16));
  ASK(cudaMemset(pinned, 1, 16));
  ASK(cudaMemset(d, 1, 4097));
  ASK(cudaMemset(d, 1, 64 << 20));
  ASK(cudaMemset(d + 1, 300, 3));
  ASK(cudaMemcpyPeerAsync(d, 0, e, 0, 4096, nullptr));
  cudaFree(e);
  ASK(cudaMemcpy(d, e, 4096, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(h, e, 4096, cudaMemcpyDeviceToHost));
  cudaFree(d);
  cudaFreeHost(pinned);
}

TEST(EmulatedRuntime, AnswersAsRecordedAboutPinnedMemory) {
  Record record("pinned");
  void* p;
  std::vector<char> memory(1 << 17);
  char* const h = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) / 4096 * 4096);
  ASK(cudaHostAlloc(&p, size_t(1) << 50, 0));
  ASK(cudaHostRegister(h + 1, 100, 0));
  ASK(cudaHostUnregister(h + 1));
  ASK(cudaHostRegister(h, 8192, 0));
  ASK(cudaHostRegister(h, 8192, 0));
  ASK(cudaHostRegister(h + 4096, 8192, 0));
  ASK(cudaHostRegister(h + 8192, 4096, 0));
  ASK(cudaHostUnregister(h + 4096));
  ASK(cudaHostUnregister(h));
  ASK(cudaHostUnregister(h));
  ASK(cudaHostUnregister(nullptr));
  ASK(cudaHostRegister(nullptr, 4096, 0));
  ASK(cudaHostRegister(h, 0, 0));
  cudaHostUnregister(h + 8192);
  cudaMallocHost(&p, 4096);
  ASK(cudaHostUnregister(p));
  ASK(cudaHostRegister(p, 4096, 0));
  cudaFreeHost(p);
  for (const unsigned flags : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 0x10u, 0xffffffffu}) {
    char asked[64];
    std::snprintf(asked, sizeof asked, "cudaHostAlloc(&p, 4096, %#x)", flags);
    const cudaError_t status = cudaHostAlloc(&p, 4096, flags);
    EXPECT_EQ(said(status), record.next(asked)) << asked;
    if (status == cudaSuccess) cudaFreeHost(p);
  }
}

TEST(EmulatedRuntime, AnswersAsRecordedAboutEvents) {
  Record record("events");
  cudaEvent_t a, b, untimed, recorded;
  float ms = -1;
  for (const unsigned flags : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
    cudaEvent_t x;
    const std::string asked = "cudaEventCreateWithFlags(&x, " + std::to_string(flags) + ")";
    const cudaError_t status = cudaEventCreateWithFlags(&x, flags);
    EXPECT_EQ(said(status), record.next(asked)) << asked;
    if (status == cudaSuccess) cudaEventDestroy(x);
  }
  ASK(cudaEventCreate(nullptr));
  cudaEventCreate(&a);
  cudaEventCreate(&b);
  cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
  ASK(cudaEventQuery(a));
  ASK(cudaEventSynchronize(a));
  ASK(cudaStreamWaitEvent(nullptr, a, 0));
  ASK(cudaEventElapsedTime(&ms, a, b));
  cudaEventRecord(a, nullptr);
  ASK(cudaEventElapsedTime(&ms, a, b));
  cudaEventRecord(b, nullptr);
  cudaEventSynchronize(b);
  ASK(cudaEventElapsedTime(&ms, a, b));
  ASK(cudaEventElapsedTime(&ms, b, a));
  EXPECT_LE(ms, 0);
  ASK(cudaEventElapsedTime(&ms, a, a));
  ASK(cudaEventElapsedTime(nullptr, a, b));
  cudaEventRecord(untimed, nullptr);
  cudaEventSynchronize(untimed);
  ASK(cudaEventElapsedTime(&ms, a, untimed));
  ASK(cudaEventElapsedTime(&ms, untimed, a));
  ASK(cudaEventDestroy(b));
  ASK(cudaDeviceSynchronize());
  cudaEventCreate(&recorded);
  ASK(cudaEventRecord(recorded, nullptr));
  ASK(cudaEventRecord(nullptr, nullptr));
  ASK(cudaEventQuery(nullptr));
  ASK(cudaEventDestroy(nullptr));
  ASK(cudaEventDestroy(recorded));
  ASK(cudaStreamWaitEvent(nullptr, a, 9));
  cudaEventDestroy(a);
  cudaEventDestroy(untimed);
}

TEST(EmulatedRuntime, AnswersAsRecordedAboutStreams) {
  Record record("streams");
  cudaStream_t s, x;
  for (const unsigned flags : {0u, 1u, 2u, 3u}) {
    const std::string asked = "cudaStreamCreateWithFlags(&x, " + std::to_string(flags) + ")";
    const cudaError_t status = cudaStreamCreateWithFlags(&x, flags);
    EXPECT_EQ(said(status), record.next(asked)) << asked;
    if (status == cudaSuccess) cudaStreamDestroy(x);
  }
  for (const int priority : {-100, -5, 0, 1, 100}) {
    int got = 99;
    const std::string asked = "cudaStreamCreateWithPriority(&x, 1, " + std::to_string(priority) + ")";
    const std::string status = said(cudaStreamCreateWithPriority(&x, cudaStreamNonBlocking, priority));
    cudaStreamGetPriority(x, &got);
    EXPECT_EQ(status + " priority " + std::to_string(got), record.next(asked)) << asked;
    cudaStreamDestroy(x);
  }
  ASK(cudaStreamCreate(nullptr));
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  ASK(cudaStreamQuery(s));
  ASK(cudaStreamQuery(nullptr));
  ASK(cudaStreamQuery(cudaStreamLegacy));
  ASK(cudaStreamQuery(cudaStreamPerThread));
  ASK(cudaStreamSynchronize(s));
  cudaEvent_t unrecorded;
  cudaEventCreate(&unrecorded);
  ASK(cudaStreamWaitEvent(s, unrecorded, 0));
  ASK(cudaStreamWaitEvent(s, nullptr, 0));
  cudaEventDestroy(unrecorded);
  ASK(cudaStreamDestroy(nullptr));
  ASK(cudaStreamDestroy(cudaStreamLegacy));
  ASK(cudaLaunchHostFunc(s, nullptr, nullptr));
  static cudaError_t inside = cudaSuccess, inside_free = cudaSuccess;
  cudaLaunchHostFunc(
      s,
      [](void*) {
        inside = cudaStreamQuery(nullptr);
        inside_free = cudaFree(nullptr);
      },
      nullptr);
  cudaStreamSynchronize(s);
  EXPECT_EQ(cudaGetErrorName(inside), record.next("cudaStreamQuery within a host function"));
  EXPECT_EQ(cudaGetErrorName(inside_free), record.next("cudaFree within a host function"));
  cudaGetLastError();
  ASK(cudaStreamDestroy(s));
}

TEST(EmulatedRuntime, RefusesTheLaunchesThatWereRefused) {
  Record record("launches");
  const auto answered = [&](int64_t blocks, int64_t threads, int64_t shared) {
    return std::string(cudaGetErrorName(check_shape(blocks, threads, shared)));
  };
  const auto recorded = [&](const std::string& asked) {
    const std::string answer = record.next(asked);
    return answer.substr(0, answer.find(' '));
  };
  EXPECT_EQ(answered(1, 1, 0), recorded("nothing, dim3(1), dim3(1), 0"));
  EXPECT_EQ(answered(1, 0, 0), recorded("nothing, dim3(1), dim3(0), 0"));
  EXPECT_EQ(answered(0, 1, 0), recorded("nothing, dim3(0), dim3(1), 0"));
  EXPECT_EQ(answered(1, 1024, 0), recorded("nothing, dim3(1), dim3(1024), 0"));
  EXPECT_EQ(answered(1, 1025, 0), recorded("nothing, dim3(1), dim3(1025), 0"));
  EXPECT_EQ(answered(0x7fffffff, 1, 0), recorded("nothing, dim3(0x7fffffff), dim3(1), 0"));
  EXPECT_EQ(answered(0x80000000, 1, 0), recorded("nothing, dim3(0x80000000u), dim3(1), 0"));
  EXPECT_EQ(answered(1, 64, 232448), recorded("uses_shared, dim3(1), dim3(64), 232448, d"));
  EXPECT_EQ(check_shape(1, 64, 232449), cudaErrorInvalidValue);
}

TEST(EmulatedRuntime, AnswersAsRecordedAboutDevices) {
  Record record("devices");
  int n = 0, current = -1;
  ASK(cudaGetDeviceCount(&n));
  ASK(cudaGetDeviceCount(nullptr));
  ASK(cudaSetDevice(0));
  ASK(cudaSetDevice(-1));
  ASK(cudaGetDevice(&current));
  int can = 9;
  ASK(cudaDeviceCanAccessPeer(&can, 0, 0));
  EXPECT_EQ(std::to_string(can), record.next("device 0 can reach itself"));
  ASK(cudaDeviceEnablePeerAccess(0, 0));
  ASK(cudaDeviceEnablePeerAccess(0, 1));
  ASK(cudaDeviceDisablePeerAccess(0));
  ASK(cudaGetDeviceProperties(nullptr, 0));
  EXPECT_EQ(cudaSetDevice(n), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

// The record is of a machine with one device. Other expectations are those of CUDA's manual.
TEST(EmulatedRuntime, PeersAreEnabledOnceAndInOneDirection) {
  set_devices(2, size_t(1) << 20);
  const auto status_of = [](cudaError_t status) { return cudaGetLastError(), status; };
  int can = 9;
  EXPECT_EQ(status_of(cudaDeviceCanAccessPeer(&can, 0, 1)), cudaSuccess);
  EXPECT_EQ(can, 1);
  EXPECT_EQ(status_of(cudaDeviceCanAccessPeer(nullptr, 0, 1)), cudaErrorInvalidValue);
  for (const int unknown : {2, -1}) {
    EXPECT_EQ(status_of(cudaDeviceCanAccessPeer(&can, 0, unknown)), cudaErrorInvalidDevice);
    EXPECT_EQ(status_of(cudaDeviceCanAccessPeer(&can, unknown, 0)), cudaErrorInvalidDevice);
    EXPECT_EQ(status_of(cudaDeviceEnablePeerAccess(unknown, 0)), cudaErrorInvalidDevice);
    EXPECT_EQ(status_of(cudaDeviceDisablePeerAccess(unknown)), cudaErrorInvalidDevice);
  }
  EXPECT_EQ(status_of(cudaDeviceDisablePeerAccess(1)), cudaErrorPeerAccessNotEnabled);
  EXPECT_EQ(status_of(cudaDeviceEnablePeerAccess(1, 1)), cudaErrorInvalidValue);
  EXPECT_EQ(status_of(cudaDeviceEnablePeerAccess(1, 0)), cudaSuccess);
  EXPECT_EQ(status_of(cudaDeviceEnablePeerAccess(1, 0)), cudaErrorPeerAccessAlreadyEnabled);
  cudaSetDevice(1);
  EXPECT_EQ(status_of(cudaDeviceDisablePeerAccess(0)), cudaErrorPeerAccessNotEnabled);
  EXPECT_EQ(status_of(cudaDeviceEnablePeerAccess(0, 0)), cudaSuccess);
  EXPECT_EQ(status_of(cudaDeviceDisablePeerAccess(0)), cudaSuccess);
  cudaSetDevice(0);
  EXPECT_EQ(status_of(cudaDeviceDisablePeerAccess(1)), cudaSuccess);
  EXPECT_EQ(status_of(cudaDeviceDisablePeerAccess(1)), cudaErrorPeerAccessNotEnabled);
  // Copies need no peer access: CUDA copies through the host.
  void *here = nullptr, *there = nullptr;
  cudaMalloc(&here, 16);
  cudaSetDevice(1);
  cudaMalloc(&there, 16);
  cudaSetDevice(0);
  int got = 0;
  EXPECT_EQ(cudaMemset(here, 1, 16), cudaSuccess);
  EXPECT_EQ(cudaMemcpyPeerAsync(there, 1, here, 0, 16, nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&got, there, 4, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(got, 0x01010101);
  EXPECT_EQ(status_of(cudaMemcpyPeerAsync(there, 2, here, 0, 16, nullptr)), cudaErrorInvalidDevice);
  cudaFree(here);
  cudaFree(there);
  set_devices(2, size_t(1) << 30);
}

TEST(EmulatedRuntime, ErrorsAreRememberedAsRecorded) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, size_t(1) << 50), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation) << "a success does not forget it";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  cudaFree(p);
}

TEST(EmulatedRuntime, AnInjectedFailureIsThatOfOneCallAStickyOneOfAllThatFollow) {
  void* p = nullptr;
  fail_call(1, cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  cudaGetLastError();
  fail_call(0, cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  int n = 0;
  EXPECT_EQ(cudaGetDeviceCount(&n), cudaSuccess);
  cudaPointerAttributes attributes;
  EXPECT_EQ(cudaPointerGetAttributes(&attributes, &n), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaMemGetInfo(nullptr, nullptr), cudaErrorIllegalAddress) << "the next call sets it again";
  Runtime::get().reset();
  cudaGetLastError();
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(EmulatedRuntime, CallsOfOneFunctionAreCountedAndFail) {
  void *p = nullptr, *q = nullptr;
  take_calls();
  fail_call_of("cudaMalloc", 1, cudaErrorInvalidValue, 2);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&q, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&q, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMalloc(&q, 16), cudaSuccess);
  EXPECT_EQ(cudaMemset(q, 0, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(q), cudaSuccess);
  EXPECT_EQ(take_calls(),
            (std::map<std::string_view, int64_t>{
                {"cudaMalloc", 4}, {"cudaStreamSynchronize", 1}, {"cudaMemset", 1}, {"cudaFree", 2}}));
  EXPECT_TRUE(take_calls().empty());
  // A call that destroys an object does so even if it returns an error.
  cudaEvent_t event;
  const size_t events = Runtime::get().events;
  EXPECT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(Runtime::get().events, events + 1);
  fail_call(0, cudaErrorInvalidValue);
  EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidValue);
  EXPECT_EQ(Runtime::get().events, events);
  cudaGetLastError();
}

TEST(EmulatedRuntime, ADeviceHasAsMuchMemoryAsATestGivesIt) {
  set_devices(2, size_t(1) << 20);
  void *p = nullptr, *q = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 600 << 10), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&q, 600 << 10), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&q, 600 << 10), cudaSuccess);
  EXPECT_EQ(device_number(device_that_holds(p)), 0);
  EXPECT_EQ(device_number(device_that_holds(q)), 1);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
  EXPECT_EQ(cudaFree(q), cudaSuccess);
  cudaSetDevice(0);
  cudaGetLastError();
  set_devices(2, size_t(1) << 30);
}

// Reuse is late, so that accesses through stale pointers are found, but not never, because the checker's
// state of each used byte takes host memory.
TEST(EmulatedRuntime, AddressesAreUsedAgainAfter64MiB) {
  set_devices(2, size_t(1) << 30);  // without blocks
  constexpr size_t kBytes = size_t(1) << 20;
  std::vector<char*> addresses;
  for (int i = 0; i < 200; ++i) {
    void* p = nullptr;
    ASSERT_EQ(cudaMalloc(&p, kBytes), cudaSuccess);
    addresses.push_back(static_cast<char*>(p));
    EXPECT_EQ(cudaFree(p), cudaSuccess);
  }
  const std::set<char*> distinct(addresses.begin(), addresses.end());
  EXPECT_GE(distinct.size(), 60u);
  EXPECT_LE(*distinct.rbegin() - *distinct.begin(), ptrdiff_t(65) << 20);
  EXPECT_EQ(std::set<char*>(addresses.begin(), addresses.begin() + 60).size(), 60u);
}

TEST(EmulatedRuntimeDeathTest, TheHostMustNotTouchDeviceMemory) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "ThreadSanitizer lets no handler of a signal allocate memory, not even for a thread's own fault";
#endif
  void* p = nullptr;
  gradus::internal::called_op = "conv2d";
  cudaMalloc(&p, 16);
  gradus::internal::called_op = "print";
  EXPECT_DEATH(static_cast<volatile char*>(p)[3] = 1,
               "the host touched device memory: allocation [0-9]* of 16 bytes for conv2d, byte 3\n"
               "  op print\n  repeat with GRADUS_EMULATED_SEED=[0-9]+\n");
  gradus::internal::called_op = nullptr;
  cudaFree(p);
}

}  // namespace
