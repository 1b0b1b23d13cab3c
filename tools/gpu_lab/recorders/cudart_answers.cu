// What the CUDA runtime answers to right and wrong calls. Each group runs in a process of its own, so that an
// error which stays (a sticky one) or a crash spoils nothing else. A line is
//
//   group, the call as it is written here, its answer; and "last: NAME" where cudaPeekAtLastError then says
//          so
//
// after which the last error is cleared. "waited" means that the host was held up until a kernel of 200 ms,
// which was running on the device, had ended.
#include <sys/wait.h>
#include <unistd.h>

#include <cassert>
#include <csignal>
#include <thread>
#include <vector>

#include "recorder.h"

namespace {

void answer(const char* asked, cudaError_t e, const std::string& more = "") {
  const cudaError_t last = cudaPeekAtLastError();
  std::string s = cudaGetErrorName(e);
  if (!more.empty()) s += " " + more;
  if (last != cudaSuccess) s += std::string(" last: ") + cudaGetErrorName(last);
  record::line(asked, "%s", s.c_str());
  cudaGetLastError();
}
#define ASK(...) answer(#__VA_ARGS__, (__VA_ARGS__))

__global__ void nothing() {}
__global__ void fill(int* p, int value) { p[threadIdx.x] = value; }
__global__ void spin(long long ns) {
  unsigned long long from, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(from));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - from < static_cast<unsigned long long>(ns));
}
__global__ void uses_shared(int* out) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = int(threadIdx.x);
  __syncthreads();
  if (out) out[threadIdx.x] = shared[threadIdx.x];
}
__global__ void __launch_bounds__(128) at_most_128() {}
template <int kBytes> struct Argument {
  char bytes[kBytes];
};
template <int kBytes> __global__ void takes(Argument<kBytes> a, char* out) {
  if (out) *out = a.bytes[kBytes - 1];
}
__global__ void write_at(char* p) { *p = 1; }
__global__ void write_int_at(char* p) { *reinterpret_cast<int*>(p) = 1; }
__global__ void trap() { asm volatile("trap;"); }
__global__ void assertion() {
#if defined(__CUDA_ARCH__)
  asm volatile("brkpt;");
#endif
}
__global__ void shared_outside(int i) {
  __shared__ int s[16];
  volatile int* p = s;
  p[i] = 1;
}
__device__ int recurse(int n) {
  volatile int space[64];
  space[n % 64] = n;
  return n <= 0 ? space[0] : recurse(n - 1) + space[n % 64];
}
__global__ void deep(int* out, int n) { *out = recurse(n); }
__global__ void null_call() {
  void (*f)() = nullptr;
  asm volatile("" : "+l"(f));
  f();
}

constexpr long long kSpin = 200'000'000;

void launch_spin(cudaStream_t s = nullptr) { spin<<<1, 1, 0, s>>>(kSpin); }

// Host time of a call beside a running kernel.
template <class F> void waits(const char* asked, cudaStream_t busy, F call) {
  MUST(cudaDeviceSynchronize());
  launch_spin(busy);
  const double t = record::seconds();
  const cudaError_t e = call();
  const double took = record::seconds() - t;
  answer(asked, e,
         took > 0.15   ? "waited"
         : took > 0.02 ? record::text("took %.0f ms", took * 1e3)
                       : "at once");
  MUST(cudaDeviceSynchronize());
}
#define WAITS(busy, ...) waits(#__VA_ARGS__, busy, [&] { return __VA_ARGS__; })

const char* name_of(cudaMemoryType t) {
  const char* names[] = {"unregistered", "host", "device", "managed"};
  return names[int(t)];
}
void pointer_attributes(const char* asked, const void* p) {
  cudaPointerAttributes a{};
  const cudaError_t e = cudaPointerGetAttributes(&a, p);
  answer(asked, e,
         record::text("type %s, device %d, devicePointer %s, hostPointer %s", name_of(a.type), a.device,
                      a.devicePointer == nullptr ? "null"
                      : a.devicePointer == p     ? "same"
                                                 : "other",
                      a.hostPointer == nullptr ? "null"
                      : a.hostPointer == p     ? "same"
                                               : "other"));
}

// ---- groups -----------------------------------------------------------------------------------------------

void memory() {
  void *p = reinterpret_cast<void*>(1), *q = nullptr;
  ASK(cudaMalloc(&p, 0));
  record::line("p after cudaMalloc(&p, 0)", "%s", p ? "not null" : "null");
  ASK(cudaFree(p));
  ASK(cudaFree(nullptr));
  ASK(cudaMalloc(nullptr, 16));
  ASK(cudaMalloc(&p, size_t(1) << 50));
  record::line("p after a failed cudaMalloc", "%s", p ? "not null" : "null");
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
  record::line("q after cudaMallocHost(&q, 0)", "%s", q ? "not null" : "null");
  size_t free_bytes, total;
  ASK(cudaMemGetInfo(&free_bytes, &total));
  ASK(cudaMemGetInfo(nullptr, &total));
  size_t before = 0, after = 0;
  MUST(cudaMemGetInfo(&before, &total));
  MUST(cudaMalloc(&p, 1));
  MUST(cudaMemGetInfo(&after, &total));
  record::line("bytes that cudaMalloc(1) took from cudaMemGetInfo", "%zu", before - after);
  MUST(cudaMemGetInfo(&before, &total));
  void* big = nullptr;
  MUST(cudaMalloc(&big, (3 << 20) + 1));
  MUST(cudaMemGetInfo(&after, &total));
  record::line("bytes that cudaMalloc(3 MiB + 1) took", "%zu", before - after);
  size_t pitch = 0;
  ASK(cudaMallocPitch(&q, &pitch, 100, 10));
  record::line("pitch of rows of 100 bytes", "%zu", pitch);
}

void alignment() {
  const size_t sizes[] = {1,     255,     256,           257,     512,     1000,     4096,
                          65536, 1 << 20, (1 << 20) + 1, 2 << 20, 3 << 20, 100 << 20};
  for (size_t size : sizes) {
    char *a = nullptr, *b = nullptr;
    MUST(cudaMalloc(&a, size));
    MUST(cudaMalloc(&b, size));
    record::line(record::text("two cudaMalloc(%zu)", size).c_str(), "aligned to %llu and %llu, %lld apart",
                 static_cast<unsigned long long>(uintptr_t(a) & -uintptr_t(a)),
                 static_cast<unsigned long long>(uintptr_t(b) & -uintptr_t(b)),
                 static_cast<long long>(b - a));
  }
  for (size_t size : {size_t(1), size_t(4096), size_t(1 << 20)}) {
    char *a = nullptr, *b = nullptr;
    MUST(cudaMallocHost(&a, size));
    MUST(cudaMallocHost(&b, size));
    record::line(
        record::text("two cudaMallocHost(%zu)", size).c_str(), "aligned to %llu and %llu, %lld apart",
        static_cast<unsigned long long>(uintptr_t(a) & -uintptr_t(a)),
        static_cast<unsigned long long>(uintptr_t(b) & -uintptr_t(b)), static_cast<long long>(b - a));
  }
  for (size_t size : {size_t(1), size_t(4096), size_t(1 << 20)}) {
    char *a = nullptr, *b = nullptr;
    MUST(cudaMallocAsync(&a, size, nullptr));
    MUST(cudaMallocAsync(&b, size, nullptr));
    record::line(
        record::text("two cudaMallocAsync(%zu)", size).c_str(), "aligned to %llu and %llu, %lld apart",
        static_cast<unsigned long long>(uintptr_t(a) & -uintptr_t(a)),
        static_cast<unsigned long long>(uintptr_t(b) & -uintptr_t(b)), static_cast<long long>(b - a));
  }
}

std::string census(const std::vector<unsigned char>& v) {
  size_t zero = 0, ff = 0, pattern = 0;
  for (unsigned char c : v) zero += c == 0, ff += c == 0xff, pattern += c == 0x5a;
  return record::text("%zu bytes: %zu are 0, %zu are 0xff, %zu are the old content", v.size(), zero, ff,
                      pattern);
}

void fresh_memory() {
  for (size_t size : {size_t(4096), size_t(1 << 20), size_t(64 << 20)}) {
    std::vector<unsigned char> v(size);
    void* p = nullptr;
    MUST(cudaMalloc(&p, size));
    MUST(cudaMemcpy(v.data(), p, size, cudaMemcpyDefault));
    record::line(record::text("first cudaMalloc(%zu)", size).c_str(), "%s", census(v).c_str());
    MUST(cudaMemset(p, 0x5a, size));
    MUST(cudaFree(p));
    void* again = nullptr;
    MUST(cudaMalloc(&again, size));
    MUST(cudaMemcpy(v.data(), again, size, cudaMemcpyDefault));
    record::line(record::text("cudaMalloc(%zu) after a cudaFree of that size", size).c_str(), "%s, %s",
                 again == p ? "same address" : "other address", census(v).c_str());
    MUST(cudaFree(again));
    MUST(cudaMallocAsync(&p, size, nullptr));
    MUST(cudaMemsetAsync(p, 0x5a, size, nullptr));
    MUST(cudaFreeAsync(p, nullptr));
    MUST(cudaMallocAsync(&again, size, nullptr));
    MUST(cudaMemcpy(v.data(), again, size, cudaMemcpyDefault));
    record::line(record::text("cudaMallocAsync(%zu) after a cudaFreeAsync", size).c_str(), "%s, %s",
                 again == p ? "same address" : "other address", census(v).c_str());
    MUST(cudaFreeAsync(again, nullptr));
    MUST(cudaMallocHost(&p, size));
    std::memcpy(v.data(), p, size);
    record::line(record::text("first cudaMallocHost(%zu)", size).c_str(), "%s", census(v).c_str());
  }
}

void copies() {
  char *d, *e, *pinned;
  std::vector<char> host(1 << 20);
  char* h = host.data();
  MUST(cudaMalloc(&d, 4096));
  MUST(cudaMalloc(&e, 4096));
  MUST(cudaMallocHost(&pinned, 4096));
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
  ASK(cudaMemcpy(d, h, 4096, cudaMemcpyKind(9)));
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
  ASK(cudaMemcpy2D(d, 64, h, 128, 64, 16, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy2D(d, 32, h, 128, 64, 16, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy2D(d, 64, h, 32, 64, 16, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy2D(d, 64, h, 128, 64, 0, cudaMemcpyHostToDevice));
  ASK(cudaMemcpy2D(d, 64, h, 128, 64, 65, cudaMemcpyHostToDevice));
  ASK(cudaMemcpyPeer(d, 0, e, 0, 4096));
  ASK(cudaMemcpyPeer(d, 0, e, 1, 4096));
  ASK(cudaMemcpyPeerAsync(d, 0, e, 0, 4096, nullptr));
  MUST(cudaFree(e));
  ASK(cudaMemcpy(d, e, 4096, cudaMemcpyDeviceToDevice));
  ASK(cudaMemcpy(h, e, 4096, cudaMemcpyDeviceToHost));
  ASK(cudaMemset(e, 0, 4096));
  ASK(cudaDeviceSynchronize());
}

void pinned() {
  void *p, *q;
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 0x10u, 0xffffffffu}) {
    const cudaError_t e = cudaHostAlloc(&p, 4096, flags);
    answer(record::text("cudaHostAlloc(&p, 4096, %#x)", flags).c_str(), e);
    if (e == cudaSuccess) MUST(cudaFreeHost(p));
  }
  ASK(cudaHostAlloc(&p, size_t(1) << 50, 0));
  char* h = static_cast<char*>(std::aligned_alloc(4096, 1 << 16));
  std::memset(h, 0, 1 << 16);
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 8u, 0x10u}) {
    const cudaError_t e = cudaHostRegister(h, 1 << 16, flags);
    answer(record::text("cudaHostRegister(h, 65536, %#x)", flags).c_str(), e);
    if (e == cudaSuccess) MUST(cudaHostUnregister(h));
  }
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
  MUST(cudaMallocHost(&p, 4096));
  ASK(cudaHostUnregister(p));
  ASK(cudaHostRegister(p, 4096, 0));
  ASK(cudaHostGetDevicePointer(&q, p, 0));
  record::line("the device's pointer of pinned memory", "%s", p == q ? "same" : "other");
  ASK(cudaHostGetDevicePointer(&q, p, 1));
  ASK(cudaHostGetDevicePointer(&q, h, 0));
  unsigned f = 0;
  ASK(cudaHostGetFlags(&f, p));
  record::line("flags of cudaMallocHost's memory", "%#x", f);
  ASK(cudaHostGetFlags(&f, h));
  char* d;
  MUST(cudaMalloc(&d, 4096));
  pointer_attributes("cudaPointerGetAttributes of device memory", d);
  pointer_attributes("cudaPointerGetAttributes inside device memory", d + 100);
  pointer_attributes("cudaPointerGetAttributes behind device memory, 512 bytes past the block",
                     d + 4096 + 512);
  pointer_attributes("cudaPointerGetAttributes of pinned memory", p);
  pointer_attributes("cudaPointerGetAttributes of pageable memory", h);
  pointer_attributes("cudaPointerGetAttributes of null", nullptr);
  MUST(cudaFree(d));
  pointer_attributes("cudaPointerGetAttributes of freed device memory", d);
  MUST(cudaFreeHost(p));
  pointer_attributes("cudaPointerGetAttributes of freed pinned memory", p);
  int* mapped;
  MUST(cudaMallocHost(&mapped, 4096));
  mapped[3] = 7;
  fill<<<1, 8>>>(mapped, 42);
  ASK(cudaDeviceSynchronize());
  record::line("a kernel writes cudaMallocHost's memory by the host's pointer", "%d", mapped[3]);
}

void events() {
  cudaEvent_t a, b, untimed, recorded;
  float ms = -1;
  for (unsigned flags : {0u, 1u, 2u, 3u, 4u, 6u, 8u}) {
    cudaEvent_t x;
    const cudaError_t e = cudaEventCreateWithFlags(&x, flags);
    answer(record::text("cudaEventCreateWithFlags(&x, %u)", flags).c_str(), e);
    if (e == cudaSuccess) MUST(cudaEventDestroy(x));
  }
  ASK(cudaEventCreate(nullptr));
  MUST(cudaEventCreate(&a));
  MUST(cudaEventCreate(&b));
  MUST(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  ASK(cudaEventQuery(a));
  ASK(cudaEventSynchronize(a));
  ASK(cudaStreamWaitEvent(nullptr, a, 0));
  ASK(cudaEventElapsedTime(&ms, a, b));
  MUST(cudaEventRecord(a));
  ASK(cudaEventElapsedTime(&ms, a, b));
  MUST(cudaEventRecord(b));
  MUST(cudaEventSynchronize(b));
  ASK(cudaEventElapsedTime(&ms, a, b));
  ASK(cudaEventElapsedTime(&ms, b, a));
  record::line("time from a later event to an earlier one is negative", "%s", ms < 0 ? "yes" : "no");
  ASK(cudaEventElapsedTime(&ms, a, a));
  ASK(cudaEventElapsedTime(nullptr, a, b));
  MUST(cudaEventRecord(untimed));
  MUST(cudaEventSynchronize(untimed));
  ASK(cudaEventElapsedTime(&ms, a, untimed));
  ASK(cudaEventElapsedTime(&ms, untimed, a));
  launch_spin();
  MUST(cudaEventRecord(b));
  ASK(cudaEventQuery(b));
  ASK(cudaEventElapsedTime(&ms, a, b));
  ASK(cudaStreamQuery(nullptr));
  ASK(cudaEventDestroy(b));
  ASK(cudaDeviceSynchronize());
  MUST(cudaEventCreate(&recorded));
  ASK(cudaEventRecord(recorded, nullptr));
  ASK(cudaEventRecordWithFlags(recorded, nullptr, cudaEventRecordExternal));
  ASK(cudaEventRecordWithFlags(recorded, nullptr, 7));
  ASK(cudaEventRecord(nullptr, nullptr));
  ASK(cudaEventQuery(nullptr));
  ASK(cudaEventDestroy(nullptr));
  ASK(cudaEventDestroy(recorded));
  ASK(cudaStreamWaitEvent(nullptr, a, 9));
  // An event that is recorded twice means the second time.
  launch_spin();
  MUST(cudaEventRecord(a));
  MUST(cudaEventSynchronize(a));
  ASK(cudaEventQuery(a));
  launch_spin();
  MUST(cudaEventRecord(a));
  ASK(cudaEventQuery(a));
  MUST(cudaDeviceSynchronize());
}

// Each of these may end the process.
void destroyed_event_queried() {
  cudaEvent_t e;
  MUST(cudaEventCreate(&e));
  MUST(cudaEventDestroy(e));
  ASK(cudaEventQuery(e));
}
void destroyed_stream_queried() {
  cudaStream_t s;
  MUST(cudaStreamCreate(&s));
  MUST(cudaStreamDestroy(s));
  ASK(cudaStreamQuery(s));
}
void default_copy_from_freed() {
  char *d, host[64];
  MUST(cudaMalloc(&d, 4096));
  MUST(cudaFree(d));
  ASK(cudaMemcpy(host, d, 64, cudaMemcpyDefault));
}
void made_up_stream() { ASK(cudaStreamQuery(cudaStream_t(0x7777))); }
void made_up_event() { ASK(cudaEventQuery(cudaEvent_t(0x7777))); }
void made_up_function() {
  cudaFuncAttributes f;
  ASK(cudaFuncGetAttributes(&f, reinterpret_cast<const void*>(0x1234)));
}
void launch_of_a_host_function() {
  void* no_args[] = {nullptr};
  ASK(cudaLaunchKernel(reinterpret_cast<const void*>(&launch_spin), dim3(1), dim3(1), no_args, 0, nullptr));
}
void launch_of_a_number() {
  void* no_args[] = {nullptr};
  ASK(cudaLaunchKernel(reinterpret_cast<const void*>(0x1234), dim3(1), dim3(1), no_args, 0, nullptr));
}
void launch_without_arguments() {
  ASK(cudaLaunchKernel(reinterpret_cast<const void*>(fill), dim3(1), dim3(1), nullptr, 0, nullptr));
  ASK(cudaDeviceSynchronize());
}
void graph_destroyed_twice() {
  cudaGraph_t g;
  MUST(cudaGraphCreate(&g, 0));
  MUST(cudaGraphDestroy(g));
  ASK(cudaGraphDestroy(g));
}

void streams() {
  cudaStream_t s, t, x;
  for (unsigned flags : {0u, 1u, 2u, 3u}) {
    const cudaError_t e = cudaStreamCreateWithFlags(&x, flags);
    answer(record::text("cudaStreamCreateWithFlags(&x, %u)", flags).c_str(), e);
    if (e == cudaSuccess) MUST(cudaStreamDestroy(x));
  }
  for (int priority : {-100, -5, 0, 1, 100}) {
    int got = 99;
    const cudaError_t e = cudaStreamCreateWithPriority(&x, cudaStreamNonBlocking, priority);
    if (e == cudaSuccess) MUST(cudaStreamGetPriority(x, &got));
    answer(record::text("cudaStreamCreateWithPriority(&x, 1, %d)", priority).c_str(), e,
           record::text("priority %d", got));
  }
  ASK(cudaStreamCreate(nullptr));
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  MUST(cudaStreamCreate(&t));
  ASK(cudaStreamQuery(s));
  ASK(cudaStreamQuery(nullptr));
  ASK(cudaStreamQuery(cudaStreamLegacy));
  ASK(cudaStreamQuery(cudaStreamPerThread));
  launch_spin(s);
  ASK(cudaStreamQuery(s));
  ASK(cudaPeekAtLastError());
  ASK(cudaStreamSynchronize(s));
  ASK(cudaStreamQuery(s));
  unsigned flags = 99;
  ASK(cudaStreamGetFlags(nullptr, &flags));
  record::line("flags of the legacy stream", "%u", flags);
  unsigned long long id = 0;
  MUST(cudaStreamGetId(nullptr, &id));
  record::line("cudaStreamGetId of the legacy stream", "%llu", id);
  MUST(cudaStreamGetId(s, &id));
  record::line("cudaStreamGetId of another", "%llu", id);
  cudaEvent_t unrecorded;
  MUST(cudaEventCreate(&unrecorded));
  ASK(cudaStreamWaitEvent(s, unrecorded, 0));
  ASK(cudaStreamWaitEvent(s, nullptr, 0));
  ASK(cudaStreamDestroy(nullptr));
  ASK(cudaStreamDestroy(cudaStreamLegacy));
  ASK(cudaLaunchHostFunc(
      s, [](void*) {}, nullptr));
  ASK(cudaLaunchHostFunc(s, nullptr, nullptr));
  static cudaError_t inside = cudaSuccess, inside_free = cudaSuccess;
  static void* to_free = nullptr;
  MUST(cudaMalloc(&to_free, 16));
  MUST(cudaLaunchHostFunc(
      s,
      [](void*) {
        inside = cudaStreamQuery(nullptr);
        inside_free = cudaFree(to_free);
      },
      nullptr));
  MUST(cudaStreamSynchronize(s));
  record::line("cudaStreamQuery within a host function", "%s", cudaGetErrorName(inside));
  record::line("cudaFree within a host function", "%s", cudaGetErrorName(inside_free));
  cudaGetLastError();
  // Which streams wait for the legacy stream, and it for them.
  auto order = [&](const char* asked, cudaStream_t first, cudaStream_t second) {
    cudaEvent_t e, f;
    MUST(cudaEventCreate(&e));
    MUST(cudaEventCreate(&f));
    MUST(cudaDeviceSynchronize());
    launch_spin(first);
    MUST(cudaEventRecord(e, first));
    nothing<<<1, 1, 0, second>>>();
    MUST(cudaEventRecord(f, second));
    MUST(cudaEventSynchronize(f));
    const cudaError_t q = cudaEventQuery(e);
    record::line(asked, "%s", q == cudaSuccess ? "second waited for first" : "second ran beside first");
    cudaGetLastError();
    MUST(cudaDeviceSynchronize());
  };
  cudaStream_t t2;
  MUST(cudaStreamCreate(&t2));
  order("first: blocking stream, second: legacy stream", t, nullptr);
  order("first: legacy stream, second: blocking stream", nullptr, t);
  order("first: non-blocking stream, second: legacy stream", s, nullptr);
  order("first: legacy stream, second: non-blocking stream", nullptr, s);
  order("first: blocking stream, second: another blocking stream", t, t2);
  order("first: per-thread stream, second: legacy stream", cudaStreamPerThread, nullptr);
  order("first: non-blocking stream, second: per-thread stream", s, cudaStreamPerThread);
  launch_spin(s);
  const double from = record::seconds();
  ASK(cudaStreamDestroy(s));
  record::line("cudaStreamDestroy with work pending", "%s",
               record::seconds() - from > 0.1 ? "waited" : "at once");
  ASK(cudaDeviceSynchronize());
}

void waiting() {
  cudaStream_t busy, s;
  MUST(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  char *d, *big, *p, *pin, *q;
  constexpr size_t kBig = 32 << 20;
  std::vector<char> host(kBig);
  char* h = host.data();
  MUST(cudaMalloc(&d, kBig));
  MUST(cudaMalloc(&big, kBig));
  MUST(cudaMallocHost(&pin, kBig));
  cudaEvent_t e;
  MUST(cudaEventCreate(&e));
  nothing<<<1, 1>>>();
  MUST(cudaDeviceSynchronize());
  record::group = "waiting, other stream busy";
  WAITS(busy, cudaMalloc(&p, 1 << 20));
  WAITS(busy, cudaFree(p));
  WAITS(busy, cudaMalloc(&p, 256));
  WAITS(busy, cudaFree(p));
  WAITS(busy, cudaMalloc(&p, 512 << 20));
  WAITS(busy, cudaFree(p));
  WAITS(busy, cudaMallocHost(&q, 1 << 20));
  WAITS(busy, cudaFreeHost(q));
  WAITS(busy, cudaHostRegister(h, 1 << 20, 0));
  WAITS(busy, cudaHostUnregister(h));
  WAITS(busy, cudaMallocAsync(&p, 1 << 20, s));
  WAITS(busy, cudaFreeAsync(p, s));
  WAITS(busy, cudaMemcpyAsync(d, h, 1024, cudaMemcpyHostToDevice, s));
  WAITS(busy, cudaMemcpyAsync(d, h, kBig, cudaMemcpyHostToDevice, s));
  WAITS(busy, cudaMemcpyAsync(h, d, 1024, cudaMemcpyDeviceToHost, s));
  WAITS(busy, cudaMemcpyAsync(d, pin, kBig, cudaMemcpyHostToDevice, s));
  WAITS(busy, cudaMemcpyAsync(pin, d, kBig, cudaMemcpyDeviceToHost, s));
  WAITS(busy, cudaMemcpy(d, h, 1024, cudaMemcpyHostToDevice));
  WAITS(busy, cudaMemcpy(h, d, 1024, cudaMemcpyDeviceToHost));
  WAITS(busy, cudaMemset(d, 0, 1024));
  WAITS(busy, cudaEventCreate(&e));
  WAITS(busy, cudaEventDestroy(e));
  cudaStream_t made;
  WAITS(busy, cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  WAITS(busy, cudaStreamDestroy(made));
  WAITS(busy, cudaStreamSynchronize(nullptr));
  WAITS(busy, cudaStreamSynchronize(s));
  WAITS(busy, cudaDeviceSynchronize());
  size_t a, b;
  WAITS(busy, cudaMemGetInfo(&a, &b));
  WAITS(busy, cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  WAITS(busy, (at_most_128<<<1, 1, 0, s>>>(), cudaGetLastError()));
  WAITS(busy, (takes<64><<<1, 1, 0, s>>>(Argument<64>{}, nullptr), cudaGetLastError()));
  WAITS(busy, cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20));
  WAITS(busy, (fill<<<1, 1, 0, s>>>(reinterpret_cast<int*>(d), 3), cudaGetLastError()));
  record::group = "waiting, same stream busy";
  MUST(cudaEventCreate(&e));
  WAITS(s, cudaMemcpyAsync(d, h, 1024, cudaMemcpyHostToDevice, s));
  WAITS(s, cudaMemcpyAsync(d, h, 65536, cudaMemcpyHostToDevice, s));
  WAITS(s, cudaMemcpyAsync(d, h, 65537, cudaMemcpyHostToDevice, s));
  WAITS(s, cudaMemcpyAsync(d, h, kBig, cudaMemcpyHostToDevice, s));
  WAITS(s, cudaMemcpyAsync(h, d, 1024, cudaMemcpyDeviceToHost, s));
  WAITS(s, cudaMemcpyAsync(d, pin, kBig, cudaMemcpyHostToDevice, s));
  WAITS(s, cudaMemcpyAsync(pin, d, kBig, cudaMemcpyDeviceToHost, s));
  WAITS(s, cudaMemcpyAsync(d, big, 1024, cudaMemcpyDeviceToDevice, s));
  WAITS(s, cudaMemsetAsync(d, 0, 1024, s));
  WAITS(s, cudaMallocAsync(&p, 1 << 20, s));
  WAITS(s, cudaFreeAsync(p, s));
  WAITS(s, cudaEventRecord(e, s));
  WAITS(s, cudaStreamWaitEvent(s, e, 0));
  WAITS(s, cudaLaunchHostFunc(
               s, [](void*) {}, nullptr));
  record::group = "waiting, legacy stream busy";
  WAITS(nullptr, cudaMemcpy(d, h, 1024, cudaMemcpyHostToDevice));
  WAITS(nullptr, cudaMemcpy(d, big, 1024, cudaMemcpyDeviceToDevice));
  WAITS(nullptr, cudaMemset(d, 0, 1024));
  WAITS(nullptr, cudaMemcpy(pin, d, 1024, cudaMemcpyDeviceToHost));

  // A pageable source that is overwritten as soon as the call has returned, behind a kernel that holds the
  // stream.
  record::group = "when the source is read";
  for (size_t n : {size_t(64), size_t(4096), size_t(65536), size_t(65540), size_t(1) << 20, kBig}) {
    std::memset(h, 1, n);
    MUST(cudaDeviceSynchronize());
    launch_spin(s);
    const double from = record::seconds();
    MUST(cudaMemcpyAsync(d, h, n, cudaMemcpyHostToDevice, s));
    const bool waited = record::seconds() - from > 0.15;
    std::memset(h, 2, n);
    MUST(cudaDeviceSynchronize());
    std::vector<char> back(n);
    MUST(cudaMemcpy(back.data(), d, n, cudaMemcpyDeviceToHost));
    size_t late = 0;
    for (char c : back) late += c == 2;
    record::line(record::text("pageable, %zu bytes", n).c_str(),
                 "%s; %zu bytes arrived as they were after the call", waited ? "waited" : "at once", late);
  }
  std::memset(pin, 1, 4096);
  launch_spin(s);
  MUST(cudaMemcpyAsync(d, pin, 4096, cudaMemcpyHostToDevice, s));
  std::memset(pin, 2, 4096);
  MUST(cudaDeviceSynchronize());
  MUST(cudaMemcpy(h, d, 4096, cudaMemcpyDeviceToHost));
  record::line("pinned, 4096 bytes", "arrived as %s",
               h[0] == 2 ? "they were after the call" : "they were at the call");
}

void launches() {
  int* d;
  MUST(cudaMalloc(&d, 4096));
  const auto go = [](const char* asked, auto kernel, dim3 grid, dim3 block, size_t shared, auto... args) {
    kernel<<<grid, block, shared>>>(args...);
    const cudaError_t last = cudaGetLastError();
    answer(asked, last, record::text("then synchronize: %s", cudaGetErrorName(cudaDeviceSynchronize())));
  };
#define GO(...) go(#__VA_ARGS__, __VA_ARGS__)
  GO(nothing, dim3(1), dim3(1), 0);
  GO(nothing, dim3(1), dim3(0), 0);
  GO(nothing, dim3(0), dim3(1), 0);
  GO(nothing, dim3(1, 0), dim3(1), 0);
  GO(nothing, dim3(1), dim3(1024), 0);
  GO(nothing, dim3(1), dim3(1025), 0);
  GO(nothing, dim3(1), dim3(1, 1, 64), 0);
  GO(nothing, dim3(1), dim3(1, 1, 65), 0);
  GO(nothing, dim3(1), dim3(1, 1024), 0);
  GO(nothing, dim3(1), dim3(32, 32, 2), 0);
  GO(nothing, dim3(0x7fffffff), dim3(1), 0);
  GO(nothing, dim3(0x80000000u), dim3(1), 0);
  GO(nothing, dim3(1, 65535), dim3(1), 0);
  GO(nothing, dim3(1, 65536), dim3(1), 0);
  GO(nothing, dim3(1, 1, 65536), dim3(1), 0);
  GO(at_most_128, dim3(1), dim3(128), 0);
  GO(at_most_128, dim3(1), dim3(129), 0);
  GO(nothing, dim3(1), dim3(1), 49152);
  GO(nothing, dim3(1), dim3(1), 49153);
  GO(uses_shared, dim3(1), dim3(64), 49152, d);
  GO(uses_shared, dim3(1), dim3(64), 49156, d);
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  GO(uses_shared, dim3(1), dim3(64), 49156, d);
  GO(uses_shared, dim3(1), dim3(64), 65536, d);
  GO(uses_shared, dim3(1), dim3(64), 65540, d);
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448));
  GO(uses_shared, dim3(1), dim3(64), 232448, d);
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 232449));
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, -1));
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributePreferredSharedMemoryCarveout, 101));
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttributePreferredSharedMemoryCarveout, 50));
  ASK(cudaFuncSetAttribute(uses_shared, cudaFuncAttribute(99), 50));
  ASK(cudaFuncSetAttribute(shared_outside, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448));
  ASK(cudaFuncSetAttribute(shared_outside, cudaFuncAttributeMaxDynamicSharedMemorySize, 232384));
  GO(uses_shared, dim3(0), dim3(0), 1 << 30, d);
  GO(takes<4096>, dim3(1), dim3(1), 0, Argument<4096>{}, static_cast<char*>(nullptr));
  GO(takes<4097>, dim3(1), dim3(1), 0, Argument<4097>{}, static_cast<char*>(nullptr));
  GO(takes<16384>, dim3(1), dim3(1), 0, Argument<16384>{}, static_cast<char*>(nullptr));
  GO(takes<32748>, dim3(1), dim3(1), 0, Argument<32748>{}, static_cast<char*>(nullptr));
  record::line("parameters of 32765 bytes", "refused by the compiler (at most 32764)");
  void* no_args[] = {nullptr};
  int dummy = 0;
  ASK(cudaLaunchKernel(static_cast<const void*>(nullptr), dim3(1), dim3(1), nullptr, 0, nullptr));
  ASK(cudaLaunchKernel(static_cast<const void*>(&dummy), dim3(1), dim3(1), no_args, 0, nullptr));
  ASK(cudaLaunchKernel(reinterpret_cast<const void*>(nothing), dim3(1), dim3(1), nullptr, 0, nullptr));
  ASK(cudaDeviceSynchronize());
  cudaFuncAttributes f;
  ASK(cudaFuncGetAttributes(&f, nothing));
  record::line(
      "attributes of an empty kernel",
      "registers %d, shared %zu, local %zu, maxThreads %d, ptx %d, binary %d, maxDynamic %d, carveout %d",
      f.numRegs, f.sharedSizeBytes, f.localSizeBytes, f.maxThreadsPerBlock, f.ptxVersion, f.binaryVersion,
      f.maxDynamicSharedSizeBytes, f.preferredShmemCarveout);
  int blocks = -1;
  ASK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 256, 0));
  ASK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 0, 0));
  ASK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 2048, 0));
  record::line("blocks of 2048 threads", "%d", blocks);
  ASK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, uses_shared, 256, 300000));
  record::line("blocks with 300000 bytes of shared memory", "%d", blocks);
  cudaLaunchConfig_t c{};
  c.gridDim = dim3(1);
  c.blockDim = dim3(64);
  ASK(cudaLaunchKernelEx(&c, fill, d, 1));
  ASK(cudaDeviceSynchronize());
  // A wrong launch between right ones leaves the device usable, and its error is read once.
  nothing<<<1, 2000>>>();
  record::line("a wrong launch, then cudaPeekAtLastError", "%s", cudaGetErrorName(cudaPeekAtLastError()));
  void* p = nullptr;
  record::line("then cudaMalloc", "%s", cudaGetErrorName(cudaMalloc(&p, 16)));
  record::line("then cudaDeviceSynchronize", "%s", cudaGetErrorName(cudaDeviceSynchronize()));
  nothing<<<1, 1>>>();
  record::line("then a right launch and cudaPeekAtLastError", "%s", cudaGetErrorName(cudaPeekAtLastError()));
  record::line("then cudaGetLastError", "%s", cudaGetErrorName(cudaGetLastError()));
  record::line("then cudaGetLastError", "%s", cudaGetErrorName(cudaGetLastError()));
  std::thread([] {
    record::line("cudaGetLastError of another thread after a wrong launch there", "%s",
                 (nothing<<<1, 2000>>>(), cudaGetErrorName(cudaPeekAtLastError())));
  }).join();
  record::line("cudaGetLastError here after it", "%s", cudaGetErrorName(cudaGetLastError()));
}

void last_error() {
  void* p;
  cudaEvent_t e;
  MUST(cudaEventCreate(&e));
  const auto kept = [](const char* asked, cudaError_t first) {
    const cudaError_t peeked = cudaPeekAtLastError(), peeked_again = cudaPeekAtLastError(),
                      got = cudaGetLastError(), again = cudaGetLastError();
    record::line(asked, "%s, peek %s, peek %s, get %s, get %s", cudaGetErrorName(first),
                 cudaGetErrorName(peeked), cudaGetErrorName(peeked_again), cudaGetErrorName(got),
                 cudaGetErrorName(again));
  };
  kept("cudaMalloc of too much", cudaMalloc(&p, size_t(1) << 50));
  launch_spin();
  MUST(cudaEventRecord(e));
  kept("cudaEventQuery, not ready", cudaEventQuery(e));
  kept("cudaStreamQuery, not ready", cudaStreamQuery(nullptr));
  kept("cudaSetDevice of a device that is not there", cudaSetDevice(7));
  kept("cudaFree of an unknown pointer", cudaFree(reinterpret_cast<void*>(0x1234)));
  cudaMalloc(&p, size_t(1) << 50);
  cudaFree(reinterpret_cast<void*>(0x1234));
  record::line("two different errors, then cudaGetLastError", "%s", cudaGetErrorName(cudaGetLastError()));
  cudaMalloc(&p, size_t(1) << 50);
  cudaDeviceSynchronize();
  record::line("an error, a successful call, then cudaGetLastError", "%s",
               cudaGetErrorName(cudaGetLastError()));
  cudaMalloc(&p, size_t(1) << 50);
  cudaEventQuery(e);
  record::line("out of memory, then not ready or success, then cudaGetLastError", "%s",
               cudaGetErrorName(cudaGetLastError()));
}

void devices() {
  int n = -1, can = -1;
  ASK(cudaGetDeviceCount(&n));
  ASK(cudaGetDeviceCount(nullptr));
  ASK(cudaSetDevice(0));
  ASK(cudaSetDevice(1));
  ASK(cudaSetDevice(-1));
  int current = -1;
  ASK(cudaGetDevice(&current));
  ASK(cudaDeviceCanAccessPeer(&can, 0, 0));
  record::line("device 0 can reach itself", "%d", can);
  ASK(cudaDeviceCanAccessPeer(&can, 0, 1));
  ASK(cudaDeviceEnablePeerAccess(0, 0));
  ASK(cudaDeviceEnablePeerAccess(1, 0));
  ASK(cudaDeviceEnablePeerAccess(0, 1));
  ASK(cudaDeviceDisablePeerAccess(0));
  ASK(cudaDeviceDisablePeerAccess(1));
  cudaDeviceProp p;
  ASK(cudaGetDeviceProperties(&p, 1));
  ASK(cudaGetDeviceProperties(nullptr, 0));
  int v;
  ASK(cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, 1));
  ASK(cudaDeviceGetAttribute(&v, cudaDeviceAttr(9999), 0));
  char bus[20] = "";
  ASK(cudaDeviceGetPCIBusId(bus, 20, 0));
  ASK(cudaDeviceGetPCIBusId(bus, 20, 1));
  ASK(cudaInitDevice(0, 0, 0));
  ASK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  ASK(cudaDeviceReset());
  ASK(cudaDeviceSynchronize());
}

void pools() {
  cudaMemPool_t pool, own;
  void *p, *q;
  cudaStream_t s;
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  ASK(cudaDeviceGetDefaultMemPool(&pool, 0));
  uint64_t threshold = 99, reserved = 99, used = 99;
  ASK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  record::line("release threshold", "%llu", static_cast<unsigned long long>(threshold));
  ASK(cudaMallocAsync(&p, 0, s));
  record::line("p after cudaMallocAsync of 0 bytes", "%s", p ? "not null" : "null");
  ASK(cudaFreeAsync(nullptr, s));
  ASK(cudaMallocAsync(&p, size_t(1) << 50, s));
  ASK(cudaMallocAsync(nullptr, 16, s));
  ASK(cudaMallocAsync(&p, 1000, s));
  MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  record::line("after cudaMallocAsync of 1000 bytes", "reserved %llu, used %llu",
               static_cast<unsigned long long>(reserved), static_cast<unsigned long long>(used));
  pointer_attributes("cudaPointerGetAttributes of a pool's memory", p);
  ASK(cudaFreeAsync(static_cast<char*>(p) + 8, s));
  ASK(cudaFreeAsync(p, s));
  ASK(cudaFreeAsync(p, s));
  ASK(cudaStreamSynchronize(s));
  MUST(cudaMallocAsync(&p, 1000, s));
  MUST(cudaStreamSynchronize(s));
  ASK(cudaFree(p));
  ASK(cudaMalloc(&q, 1000));
  ASK(cudaFreeAsync(q, s));
  ASK(cudaStreamSynchronize(s));
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  ASK(cudaMemPoolCreate(&own, &props));
  ASK(cudaMallocFromPoolAsync(&p, 1 << 20, own, s));
  ASK(cudaMemPoolTrimTo(own, 0));
  ASK(cudaFreeAsync(p, s));
  ASK(cudaStreamSynchronize(s));
  ASK(cudaMemPoolTrimTo(own, 0));
  ASK(cudaMemPoolDestroy(own));
  ASK(cudaMemPoolDestroy(pool));
  // A block freed on one stream and asked for on another.
  cudaStream_t t;
  MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  MUST(cudaMallocAsync(&p, 1 << 20, s));
  MUST(cudaStreamSynchronize(s));
  launch_spin(s);
  MUST(cudaFreeAsync(p, s));
  MUST(cudaMallocAsync(&q, 1 << 20, t));
  record::line("freed on a busy stream, asked for on another", "%s",
               p == q ? "same address" : "other address");
  void* r;
  MUST(cudaMallocAsync(&r, 1 << 20, s));
  record::line("freed on a busy stream, asked for on the same", "%s",
               p == r ? "same address" : "other address");
  MUST(cudaDeviceSynchronize());
}

// ---- capture ----------------------------------------------------------------------------------------------

const char* status_of(cudaStream_t s) {
  cudaStreamCaptureStatus c = cudaStreamCaptureStatusNone;
  const cudaError_t e = cudaStreamIsCapturing(s, &c);
  cudaGetLastError();
  if (e != cudaSuccess) return cudaGetErrorName(e);
  return c == cudaStreamCaptureStatusNone     ? "none"
         : c == cudaStreamCaptureStatusActive ? "active"
                                              : "invalidated";
}

struct Scene {
  cudaStream_t s, other, blocking;
  cudaEvent_t before, event, unrecorded;
  char *d, *pinned, *pageable;
  void* extra;
  void* extra_host;
  void* extra_async;
};

template <class F> void in_capture(const char* asked, cudaStreamCaptureMode mode, F call) {
  Scene c;
  MUST(cudaStreamCreateWithFlags(&c.s, cudaStreamNonBlocking));
  MUST(cudaStreamCreateWithFlags(&c.other, cudaStreamNonBlocking));
  MUST(cudaStreamCreate(&c.blocking));
  MUST(cudaEventCreate(&c.before));
  MUST(cudaEventCreate(&c.event));
  MUST(cudaEventCreate(&c.unrecorded));
  MUST(cudaMalloc(&c.d, 4096));
  MUST(cudaMalloc(&c.extra, 4096));
  MUST(cudaMallocHost(&c.pinned, 4096));
  MUST(cudaMallocHost(&c.extra_host, 4096));
  MUST(cudaMallocAsync(&c.extra_async, 4096, c.s));
  static char pageable[4096];
  c.pageable = pageable;
  MUST(cudaEventRecord(c.before, c.other));
  MUST(cudaDeviceSynchronize());
  MUST(cudaStreamBeginCapture(c.s, mode));
  nothing<<<1, 1, 0, c.s>>>();
  const cudaError_t e = call(c);
  const cudaError_t last = cudaGetLastError();
  const std::string status = status_of(c.s);
  cudaGraph_t graph = reinterpret_cast<cudaGraph_t>(1);
  const cudaError_t end = cudaStreamEndCapture(c.s, &graph);
  size_t nodes = 0;
  if (end == cudaSuccess && graph) MUST(cudaGraphGetNodes(graph, nullptr, &nodes));
  record::line(
      asked, "%s%s%s; capture then %s; end: %s, %s, %zu nodes; last error after end: %s", cudaGetErrorName(e),
      last == cudaSuccess ? "" : " last: ", last == cudaSuccess ? "" : cudaGetErrorName(last), status.c_str(),
      cudaGetErrorName(end), graph ? "graph" : "null", nodes, cudaGetErrorName(cudaPeekAtLastError()));
  cudaGetLastError();
  for (cudaStream_t t : {c.other, c.blocking}) {
    if (!t || std::string(status_of(t)) == "none") continue;
    cudaGraph_t g;
    cudaStreamEndCapture(t, &g);
  }
  cudaGetLastError();
  const cudaError_t after = cudaDeviceSynchronize();
  if (after != cudaSuccess) record::line(asked, "the device afterwards: %s", cudaGetErrorName(after));
  cudaGetLastError();
}

void captures(cudaStreamCaptureMode mode) {
#define CAPTURED(...) in_capture(#__VA_ARGS__, mode, [](Scene& c) -> cudaError_t { return __VA_ARGS__; })
  void* p;
  (void)p;
  CAPTURED(cudaSuccess);
  CAPTURED(cudaMalloc(&c.extra, 1 << 20));
  CAPTURED(cudaFree(c.extra));
  CAPTURED(cudaFree(nullptr));
  CAPTURED(cudaMallocHost(&c.extra_host, 4096));
  CAPTURED(cudaFreeHost(c.extra_host));
  CAPTURED(cudaHostRegister(c.pageable, 4096, 0));
  CAPTURED(cudaMallocAsync(&c.extra_async, 4096, c.s));
  CAPTURED(cudaMallocAsync(&c.extra_async, 4096, c.other));
  CAPTURED(cudaFreeAsync(c.extra_async, c.s));
  CAPTURED(cudaFreeAsync(c.extra, c.s));
  CAPTURED(cudaDeviceSynchronize());
  CAPTURED(cudaStreamSynchronize(c.s));
  CAPTURED(cudaStreamSynchronize(c.other));
  CAPTURED(cudaStreamSynchronize(nullptr));
  CAPTURED(cudaStreamQuery(c.s));
  CAPTURED(cudaStreamQuery(c.other));
  CAPTURED(cudaStreamQuery(nullptr));
  CAPTURED(cudaEventQuery(c.before));
  CAPTURED(cudaEventSynchronize(c.before));
  CAPTURED(cudaEventRecord(c.event, c.s));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaEventQuery(c.event)));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaEventSynchronize(c.event)));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaEventDestroy(c.event)));
  CAPTURED((cudaEventRecordWithFlags(c.event, c.s, cudaEventRecordExternal)));
  CAPTURED(cudaStreamWaitEvent(c.s, c.before, 0));
  CAPTURED(cudaStreamWaitEvent(c.s, c.before, cudaEventWaitExternal));
  CAPTURED(cudaStreamWaitEvent(c.s, c.unrecorded, 0));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0)));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0),
            nothing<<<1, 1, 0, c.other>>>(), cudaGetLastError()));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(c.other, c.event, 0),
            nothing<<<1, 1, 0, c.other>>>(), cudaEventRecord(c.event, c.other),
            cudaStreamWaitEvent(c.s, c.event, 0)));
  CAPTURED((cudaEventRecord(c.event, c.s), cudaStreamWaitEvent(nullptr, c.event, 0)));
  CAPTURED((nothing<<<1, 1>>>(), cudaGetLastError()));
  CAPTURED((nothing<<<1, 1, 0, c.other>>>(), cudaGetLastError()));
  CAPTURED((nothing<<<1, 1, 0, c.blocking>>>(), cudaGetLastError()));
  CAPTURED((nothing<<<1, 2000, 0, c.s>>>(), cudaGetLastError()));
  CAPTURED((takes<128><<<1, 1, 0, c.s>>>(Argument<128>{}, nullptr), cudaGetLastError()));
  CAPTURED(cudaMemcpy(c.d, c.pageable, 64, cudaMemcpyHostToDevice));
  CAPTURED(cudaMemcpyAsync(c.d, c.pageable, 64, cudaMemcpyHostToDevice, c.s));
  CAPTURED(cudaMemcpyAsync(c.pageable, c.d, 64, cudaMemcpyDeviceToHost, c.s));
  CAPTURED(cudaMemcpyAsync(c.d, c.pinned, 64, cudaMemcpyHostToDevice, c.s));
  CAPTURED(cudaMemcpyAsync(c.d, c.d + 64, 64, cudaMemcpyDeviceToDevice, c.s));
  CAPTURED(cudaMemcpyAsync(c.d, c.d + 64, 64, cudaMemcpyDeviceToDevice, nullptr));
  CAPTURED(cudaMemcpyAsync(c.d, c.pinned, 5000, cudaMemcpyHostToDevice, c.s));
  CAPTURED(cudaMemset(c.d, 0, 64));
  CAPTURED(cudaMemsetAsync(c.d, 0, 64, c.s));
  CAPTURED(cudaLaunchHostFunc(
      c.s, [](void*) {}, nullptr));
  CAPTURED(cudaStreamAddCallback(
      c.s, [](cudaStream_t, cudaError_t, void*) {}, nullptr, 0));
  CAPTURED(cudaStreamCreate(&c.blocking));
  CAPTURED([&] {
    const cudaError_t e = cudaStreamDestroy(c.other);
    c.other = nullptr;
    return e;
  }());
  CAPTURED(cudaEventCreate(&c.event));
  CAPTURED(cudaEventDestroy(c.before));
  CAPTURED(cudaEventRecord(c.before, c.other));
  CAPTURED(cudaStreamBeginCapture(c.s, cudaStreamCaptureModeRelaxed));
  CAPTURED(cudaStreamBeginCapture(c.other, cudaStreamCaptureModeRelaxed));
  CAPTURED([&] {
    size_t a, b;
    return cudaMemGetInfo(&a, &b);
  }());
  CAPTURED([&] {
    cudaDeviceProp a;
    return cudaGetDeviceProperties(&a, 0);
  }());
  CAPTURED([&] {
    cudaPointerAttributes a;
    return cudaPointerGetAttributes(&a, c.d);
  }());
  CAPTURED([&] {
    float ms;
    return cudaEventElapsedTime(&ms, c.before, c.before);
  }());
  CAPTURED(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  CAPTURED(cudaSetDevice(0));
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] { e = cudaMalloc(&c.extra, 4096); }).join();
    return e;
  }());
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] { e = cudaStreamQuery(c.other); }).join();
    return e;
  }());
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] { e = cudaStreamSynchronize(c.other); }).join();
    return e;
  }());
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] { e = cudaDeviceSynchronize(); }).join();
    return e;
  }());
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] { e = cudaMemcpy(c.d, c.pageable, 64, cudaMemcpyHostToDevice); }).join();
    return e;
  }());
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] {
      nothing<<<1, 1, 0, c.s>>>();
      e = cudaGetLastError();
    }).join();
    return e;
  }());
  CAPTURED([&] {
    cudaError_t e;
    std::thread([&] {
      cudaGraph_t g;
      e = cudaStreamEndCapture(c.s, &g);
    }).join();
    return e;
  }());
  CAPTURED([&] {
    auto m = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&m);
    const cudaError_t e = cudaMalloc(&c.extra, 4096);
    cudaThreadExchangeStreamCaptureMode(&m);
    return e;
  }());
}
void captures_global() { captures(cudaStreamCaptureModeGlobal); }
void captures_thread_local() { captures(cudaStreamCaptureModeThreadLocal); }
void captures_relaxed() { captures(cudaStreamCaptureModeRelaxed); }

void capture_ends() {
  cudaStream_t s;
  cudaGraph_t g;
  MUST(cudaStreamCreate(&s));
  ASK(cudaStreamEndCapture(s, &g));
  ASK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
  ASK(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeRelaxed));
  ASK(cudaStreamEndCapture(cudaStreamPerThread, &g));
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureMode(7)));
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ASK(cudaStreamEndCapture(s, nullptr));
  record::line("capture after an end without a place for the graph", "%s", status_of(s));
  cudaStreamEndCapture(s, &g);
  cudaGetLastError();
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ASK(cudaStreamEndCapture(s, &g));
  size_t nodes = 99;
  ASK(cudaGraphGetNodes(g, nullptr, &nodes));
  record::line("nodes of an empty capture", "%zu", nodes);
  ASK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  ASK(cudaStreamDestroy(s));
  ASK(cudaDeviceSynchronize());
  cudaStreamCaptureStatus status;
  ASK(cudaStreamIsCapturing(nullptr, &status));
}

void graphs() {
  cudaStream_t s;
  cudaGraph_t empty, one, two, copy, memset_graph;
  cudaGraphExec_t exec, exec2;
  int* d;
  MUST(cudaMalloc(&d, 4096));
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  const auto capture = [&](cudaGraph_t* g, auto work) {
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    work();
    MUST(cudaStreamEndCapture(s, g));
  };
  ASK(cudaGraphCreate(&empty, 0));
  ASK(cudaGraphCreate(&empty, 1));
  ASK(cudaGraphInstantiate(&exec, empty, 0));
  ASK(cudaGraphLaunch(exec, s));
  ASK(cudaGraphLaunch(exec, nullptr));
  ASK(cudaGraphLaunch(nullptr, s));
  ASK(cudaGraphInstantiate(&exec, nullptr, 0));
  ASK(cudaGraphExecDestroy(exec));
  capture(&one, [&] { fill<<<1, 64, 0, s>>>(d, 1); });
  capture(&two, [&] {
    fill<<<1, 64, 0, s>>>(d, 1);
    nothing<<<1, 1, 0, s>>>();
  });
  capture(&memset_graph, [&] { cudaMemsetAsync(d, 0, 64, s); });
  capture(&copy, [&] { cudaMemcpyAsync(d, d + 256, 64, cudaMemcpyDeviceToDevice, s); });
  MUST(cudaGraphInstantiate(&exec, one, 0));
  const auto update = [&](const char* asked, cudaGraph_t g) {
    cudaGraphExecUpdateResultInfo info{};
    const cudaError_t e = cudaGraphExecUpdate(exec, g, &info);
    answer(asked, e, record::text("result %d", int(info.result)));
  };
  update("cudaGraphExecUpdate, the same graph", one);
  update("cudaGraphExecUpdate, one node more", two);
  update("cudaGraphExecUpdate, a node of another kind", memset_graph);
  cudaGraph_t changed;
  capture(&changed, [&] { fill<<<1, 64, 0, s>>>(d, 5); });
  update("cudaGraphExecUpdate, another argument", changed);
  MUST(cudaGraphLaunch(exec, s));
  int got = 0;
  MUST(cudaStreamSynchronize(s));
  MUST(cudaMemcpy(&got, d, 4, cudaMemcpyDeviceToHost));
  record::line("the updated graph writes", "%d", got);
  capture(&changed, [&] { fill<<<2, 32, 0, s>>>(d, 5); });
  update("cudaGraphExecUpdate, another launch shape", changed);
  capture(&changed, [&] { uses_shared<<<1, 32, 256, s>>>(d); });
  update("cudaGraphExecUpdate, another kernel with other parameters", changed);
  capture(&changed, [&] { nothing<<<1, 1, 0, s>>>(); });
  update("cudaGraphExecUpdate, another kernel without parameters", changed);
  update("cudaGraphExecUpdate, an empty graph", empty);
  MUST(cudaGraphInstantiate(&exec2, memset_graph, 0));
  cudaGraph_t longer;
  capture(&longer, [&] { cudaMemsetAsync(d, 1, 128, s); });
  cudaGraphExecUpdateResultInfo info{};
  ASK(cudaGraphExecUpdate(exec2, longer, &info));
  // The graph may go once it was instantiated; the executable one while it runs.
  ASK(cudaGraphDestroy(one));
  ASK(cudaGraphLaunch(exec, s));
  cudaGraph_t slow;
  capture(&slow, [&] { launch_spin(s); });
  cudaGraphExec_t slow_exec;
  MUST(cudaGraphInstantiate(&slow_exec, slow, 0));
  MUST(cudaGraphLaunch(slow_exec, s));
  double from = record::seconds();
  ASK(cudaGraphLaunch(slow_exec, s));
  record::line("launch of a graph that is running", "%s",
               record::seconds() - from > 0.1 ? "waited" : "at once");
  from = record::seconds();
  ASK(cudaGraphExecDestroy(slow_exec));
  record::line("destroying a graph that is running", "%s",
               record::seconds() - from > 0.1 ? "waited" : "at once");
  ASK(cudaDeviceSynchronize());
  // The same executable graph on two streams at once.
  cudaStream_t t;
  MUST(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  MUST(cudaGraphInstantiate(&slow_exec, slow, 0));
  from = record::seconds();
  MUST(cudaGraphLaunch(slow_exec, s));
  MUST(cudaGraphLaunch(slow_exec, t));
  MUST(cudaDeviceSynchronize());
  record::line("one executable graph launched on two streams", "%s",
               record::seconds() - from > 0.35 ? "one after the other" : "side by side");
  // Memory of the graph's own.
  cudaGraph_t with_memory;
  void* p = nullptr;
  capture(&with_memory, [&] { cudaMallocAsync(&p, 4096, s); });
  cudaGraphExec_t memory_exec;
  ASK(cudaGraphInstantiate(&memory_exec, with_memory, 0));
  ASK(cudaGraphLaunch(memory_exec, s));
  ASK(cudaStreamSynchronize(s));
  ASK(cudaGraphLaunch(memory_exec, s));
  ASK(cudaMemset(p, 0, 4096));
  ASK(cudaFreeAsync(p, s));
  ASK(cudaGraphLaunch(memory_exec, s));
  ASK(cudaStreamSynchronize(s));
  cudaGraphExec_t second;
  ASK(cudaGraphInstantiate(&second, with_memory, 0));
  cudaGraph_t both;
  capture(&both, [&] {
    cudaMallocAsync(&p, 4096, s);
    cudaFreeAsync(p, s);
  });
  cudaGraphExec_t both_exec;
  ASK(cudaGraphInstantiate(&both_exec, both, 0));
  ASK(cudaGraphLaunch(both_exec, s));
  ASK(cudaGraphLaunch(both_exec, s));
  ASK(cudaStreamSynchronize(s));
  // Pageable memory in a graph: read at the launch or at the capture?
  static char h[4096];
  std::memset(h, 1, 4096);
  cudaGraph_t pageable;
  MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  const cudaError_t in_graph = cudaMemcpyAsync(d, h, 4096, cudaMemcpyHostToDevice, s);
  answer("a pageable copy in a capture", in_graph);
  const cudaError_t ended = cudaStreamEndCapture(s, &pageable);
  answer("its end", ended);
  if (ended == cudaSuccess) {
    std::memset(h, 2, 4096);
    cudaGraphExec_t x;
    MUST(cudaGraphInstantiate(&x, pageable, 0));
    MUST(cudaGraphLaunch(x, s));
    MUST(cudaStreamSynchronize(s));
    char byte = 0;
    MUST(cudaMemcpy(&byte, d, 1, cudaMemcpyDeviceToHost));
    record::line("a pageable source in a graph, overwritten between capture and launch, arrives as", "%s",
                 byte == 2 ? "it was at the launch" : "it was at the capture");
  }
  // A buffer freed after the capture.
  char* gone;
  MUST(cudaMalloc(&gone, 4096));
  cudaGraph_t stale;
  capture(&stale, [&] { cudaMemsetAsync(gone, 0, 4096, s); });
  MUST(cudaFree(gone));
  cudaGraphExec_t stale_exec;
  ASK(cudaGraphInstantiate(&stale_exec, stale, 0));
}

// ---- errors that stay -------------------------------------------------------------------------------------

template <class F> void sticky(F cause) {
  char *d, *e;
  cudaStream_t s;
  cudaEvent_t recorded, later;
  void* p = nullptr;
  static char h[64];
  MUST(cudaMalloc(&d, 4096));
  MUST(cudaMalloc(&e, 4096));
  MUST(cudaStreamCreate(&s));
  MUST(cudaEventCreate(&recorded));
  MUST(cudaEventCreate(&later));
  MUST(cudaEventRecord(recorded, s));
  MUST(cudaDeviceSynchronize());
  cause(d);
  // No ASK here: it would clear what the next call is asked about.
  const auto tell = [](const char* asked, cudaError_t x) { record::line(asked, "%s", cudaGetErrorName(x)); };
  tell("cudaPeekAtLastError right after the launch", cudaPeekAtLastError());
  tell("cudaDeviceSynchronize", cudaDeviceSynchronize());
  tell("cudaPeekAtLastError", cudaPeekAtLastError());
  tell("cudaGetLastError", cudaGetLastError());
  tell("cudaGetLastError", cudaGetLastError());
  tell("cudaDeviceSynchronize", cudaDeviceSynchronize());
  tell("cudaStreamQuery", cudaStreamQuery(s));
  tell("cudaStreamSynchronize", cudaStreamSynchronize(s));
  tell("cudaEventQuery", cudaEventQuery(recorded));
  tell("cudaEventRecord", cudaEventRecord(later, s));
  tell("cudaMalloc", cudaMalloc(&p, 16));
  tell("cudaMallocHost", cudaMallocHost(&p, 16));
  tell("cudaMallocAsync", cudaMallocAsync(&p, 16, s));
  tell("cudaMemcpy to the host", cudaMemcpy(h, e, 64, cudaMemcpyDeviceToHost));
  tell("cudaMemcpyAsync", cudaMemcpyAsync(h, e, 64, cudaMemcpyDeviceToHost, s));
  tell("cudaMemset", cudaMemset(e, 0, 64));
  nothing<<<1, 1>>>();
  tell("a launch, cudaGetLastError", cudaGetLastError());
  size_t a, b;
  tell("cudaMemGetInfo", cudaMemGetInfo(&a, &b));
  int n;
  tell("cudaGetDeviceCount", cudaGetDeviceCount(&n));
  tell("cudaSetDevice", cudaSetDevice(0));
  tell("cudaGetDevice", cudaGetDevice(&n));
  cudaDeviceProp prop;
  tell("cudaGetDeviceProperties", cudaGetDeviceProperties(&prop, 0));
  cudaPointerAttributes attributes;
  tell("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, e));
  tell("cudaEventCreate", cudaEventCreate(&later));
  tell("cudaStreamCreate", cudaStreamCreate(&s));
  tell("cudaEventDestroy", cudaEventDestroy(recorded));
  tell("cudaFree", cudaFree(e));
  tell("cudaFree of null", cudaFree(nullptr));
  tell("cudaGetLastError", cudaGetLastError());
  tell("cudaDeviceReset", cudaDeviceReset());
  tell("cudaGetLastError after the reset", cudaGetLastError());
  tell("cudaMalloc after the reset", cudaMalloc(&p, 16));
  tell("cudaDeviceSynchronize after the reset", cudaDeviceSynchronize());
}
void sticky_none() {
  sticky([](char*) { nothing<<<1, 1>>>(); });
}
void sticky_null() {
  sticky([](char*) { write_at<<<1, 1>>>(nullptr); });
}
void sticky_illegal() {
  sticky([](char* d) { write_at<<<1, 1>>>(d + (size_t(1) << 40)); });
}
void sticky_host_pointer() {
  sticky([](char*) {
    static char on_host[64];
    write_at<<<1, 1>>>(on_host);
  });
}
void sticky_misaligned() {
  sticky([](char* d) { write_int_at<<<1, 1>>>(d + 1); });
}
void sticky_trap() {
  sticky([](char*) { trap<<<1, 1>>>(); });
}
void sticky_breakpoint() {
  sticky([](char*) { assertion<<<1, 1>>>(); });
}
void sticky_assert();
void sticky_shared() {
  sticky([](char*) { shared_outside<<<1, 1>>>(1 << 20); });
}
void sticky_dynamic_shared() {
  sticky([](char*) { uses_shared<<<1, 64, 128>>>(nullptr); });
}
void sticky_stack_a_little() {
  sticky([](char* d) { deep<<<1, 1>>>(reinterpret_cast<int*>(d), 4); });
}
void sticky_stack() {
  sticky([](char* d) { deep<<<1, 1>>>(reinterpret_cast<int*>(d), 1000000); });
}
void sticky_null_call() {
  sticky([](char*) { null_call<<<1, 1>>>(); });
}
// Wrong, and yet not found by the hardware.
void unnoticed() {
  char *a, *b;
  MUST(cudaMalloc(&a, 1000));
  MUST(cudaMalloc(&b, 1000));
  write_at<<<1, 1>>>(a + 1000);
  record::line("a write 1 byte behind a block", "%s", cudaGetErrorName(cudaDeviceSynchronize()));
  write_at<<<1, 1>>>(a + (1 << 20));
  record::line("a write 1 MiB behind a block", "%s", cudaGetErrorName(cudaDeviceSynchronize()));
  shared_outside<<<1, 1>>>(17);
  record::line("a write 1 element behind static shared memory", "%s",
               cudaGetErrorName(cudaDeviceSynchronize()));
  MUST(cudaFree(b));
  write_at<<<1, 1>>>(b);
  record::line("a write to a freed block (others of its 2 MiB are alive)", "%s",
               cudaGetErrorName(cudaDeviceSynchronize()));
}
void freed_alone() {
  char* big;
  MUST(cudaMalloc(&big, 64 << 20));
  MUST(cudaFree(big));
  write_at<<<1, 1>>>(big);
  record::line("a write to a freed block of 64 MiB", "%s", cudaGetErrorName(cudaDeviceSynchronize()));
}
void behind_alone() {
  char* big;
  MUST(cudaMalloc(&big, 64 << 20));
  write_at<<<1, 1>>>(big + (64 << 20));
  record::line("a write behind a block of 64 MiB", "%s", cudaGetErrorName(cudaDeviceSynchronize()));
}

void in_a_child(const char* name, void (*work)()) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(25);
    record::group = name;
    work();
    std::fflush(stdout);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  record::group = name;
  if (WIFSIGNALED(status))
    record::line("(the process)", "killed by signal %d, %s", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else if (WEXITSTATUS(status))
    record::line("(the process)", "exit status %d", WEXITSTATUS(status));
}

__global__ void asserts(int n) { assert(n == 0); }
void sticky_assert() {
  sticky([](char*) { asserts<<<1, 1>>>(1); });
}

}  // namespace

int main() {
  record::header("Answers of the CUDA runtime");
  in_a_child("memory", memory);
  in_a_child("alignment", alignment);
  in_a_child("fresh memory", fresh_memory);
  in_a_child("copies", copies);
  in_a_child("pinned", pinned);
  in_a_child("events", events);
  in_a_child("destroyed event", destroyed_event_queried);
  in_a_child("destroyed stream", destroyed_stream_queried);
  in_a_child("default copy from freed memory", default_copy_from_freed);
  in_a_child("made-up stream", made_up_stream);
  in_a_child("made-up event", made_up_event);
  in_a_child("made-up function", made_up_function);
  in_a_child("launch of a host function", launch_of_a_host_function);
  in_a_child("launch of a number", launch_of_a_number);
  in_a_child("launch without arguments", launch_without_arguments);
  in_a_child("graph destroyed twice", graph_destroyed_twice);
  in_a_child("streams", streams);
  in_a_child("waiting", waiting);
  in_a_child("launches", launches);
  in_a_child("last error", last_error);
  in_a_child("devices", devices);
  in_a_child("pools", pools);
  in_a_child("capture, global", captures_global);
  in_a_child("capture, thread-local", captures_thread_local);
  in_a_child("capture, relaxed", captures_relaxed);
  in_a_child("capture ends", capture_ends);
  in_a_child("graphs", graphs);
  in_a_child("no sticky error", sticky_none);
  in_a_child("sticky: write to null", sticky_null);
  in_a_child("sticky: write to nowhere", sticky_illegal);
  in_a_child("sticky: write to the host's static memory", sticky_host_pointer);
  in_a_child("sticky: misaligned", sticky_misaligned);
  in_a_child("sticky: trap", sticky_trap);
  in_a_child("sticky: breakpoint", sticky_breakpoint);
  in_a_child("sticky: assert", sticky_assert);
  in_a_child("sticky: far outside of shared memory", sticky_shared);
  in_a_child("sticky: 128 bytes beyond dynamic shared memory", sticky_dynamic_shared);
  in_a_child("sticky: five calls deep with 256 bytes each", sticky_stack_a_little);
  in_a_child("sticky: stack too deep", sticky_stack);
  in_a_child("sticky: call of null", sticky_null_call);
  in_a_child("unnoticed", unnoticed);
  in_a_child("unnoticed", freed_alone);
  in_a_child("unnoticed", behind_alone);
}
