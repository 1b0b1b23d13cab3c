// The kernels and cases of planted.h. Cases whose name begins with "right:" have no fault.
#include "planted.h"

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace planted {
namespace {

using namespace gradus::cuda;  // NOLINT
using Kind = emulated::FaultKind;

constexpr int kThreads = 256;
struct Four {
  alignas(16) float v[4];
};

template <class T> __device__ T warp_sum(T v) {
  for (int d = kWarp / 2; d > 0; d /= 2) v += __shfl_xor_sync(kAllLanes, v, d);
  return v;
}

struct Partial {
  float v[kThreads / kWarp];
  float total;
};
// A sum over the block, where barrier number `kDrop` is missing (4: all).
template <int kDrop> __device__ float block_sum(float v) {
  Partial& s = shared_memory<Partial>();
  v = warp_sum(v);
  if (threadIdx.x % kWarp == 0) s.v[threadIdx.x / kWarp] = v;
  if (kDrop != 1 && kDrop != 4) __syncthreads();
  if (threadIdx.x < kWarp) {
    const float t = warp_sum(threadIdx.x < kThreads / kWarp ? s.v[threadIdx.x] : 0.f);
    if (threadIdx.x == 0) s.total = t;
  }
  if (kDrop != 2 && kDrop != 4) __syncthreads();
  return s.total;
}
// Two block sums in sequence. The second one's first writes are to s.v, which no thread reads after barrier
// 2.
template <int kDrop> __global__ void normalize_rows(float* y, const float* x, int n) {
  const float* row = x + int64_t{blockIdx.x} * n;
  float a = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) a += row[i];
  a = block_sum<kDrop>(a);
  float b = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) b += row[i] * a;
  b = block_sum<kDrop>(b);
  for (int i = threadIdx.x; i < n; i += kThreads) y[int64_t{blockIdx.x} * n + i] = row[i] * a / b;
}

// y = 2 x in vectors of 4 with a scalar tail, which is kBeyond elements too long.
template <int kBeyond> __global__ void twice(float* y, const float* x, int n) {
  const int i = (int(blockIdx.x) * kThreads + threadIdx.x) * 4;
  if (i + 4 <= n) {
    Four v = load_vector<Four>(x + i);
    for (float& e : v.v) e = 2 * e;
    store_vector(y + i, v);
  } else {
    for (int k = i; k < n + kBeyond; ++k) y[k] = 2 * x[k];
  }
}

template <int kPad> struct Tile {
  float v[32][32 + kPad];
};
template <int kPad, bool kBarrier> __global__ void transpose(float* y, const float* x, int n) {
  Tile<kPad>& t = shared_memory<Tile<kPad>>();
  const int tiles = n / 32, r = int(blockIdx.x) / tiles * 32, c = int(blockIdx.x) % tiles * 32;
  const int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  for (int k = ty; k < 32; k += 8) t.v[k][tx] = x[(r + k) * n + c + tx];
  if (kBarrier) __syncthreads();
  for (int k = ty; k < 32; k += 8) y[(c + k) * n + r + tx] = t.v[tx][k];
}

struct Line {
  float v[64];
};
// Each round fills the line and reads another's element. The last barrier keeps the next round from
// writing too early.
__global__ void rounds(float* y, const float* x, int n, bool last) {
  Line& t = shared_memory<Line>();
  float a = 0;
  for (int r = 0; r < n; ++r) {
    t.v[threadIdx.x] = x[r * 64 + threadIdx.x];
    __syncthreads();
    a += t.v[63 - threadIdx.x];
    if (last) __syncthreads();
  }
  y[threadIdx.x] = a;
}
// Lanes of one warp through shared memory.
__global__ void within_a_warp(float* y, const float* x, bool sync) {
  Line& t = shared_memory<Line>();
  t.v[threadIdx.x] = x[threadIdx.x];
  if (sync) __syncwarp();
  y[threadIdx.x] = t.v[threadIdx.x ^ 31];
}
// Each half of a warp synchronizes only itself: accesses of different halves are not ordered.
__global__ void halves_of_a_warp(float* y, const float* x, int lanes) {
  Line& t = shared_memory<Line>();
  t.v[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x < 16)
    __syncwarp(0x0000ffffu);
  else
    __syncwarp(0xffff0000u);
  y[threadIdx.x] = t.v[threadIdx.x ^ lanes];
}
// Two warps, each of which synchronizes only itself.
__global__ void between_warps(float* y, const float* x) {
  Line& t = shared_memory<Line>();
  t.v[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  y[threadIdx.x] = t.v[63 - threadIdx.x];
}
// All threads read one element; then one of them writes it.
__global__ void write_after_many_reads(float* y, bool sync) {
  Line& t = shared_memory<Line>();
  if (threadIdx.x == 0) t.v[0] = 1;
  __syncthreads();
  y[threadIdx.x] = t.v[0];
  if (sync) __syncthreads();
  if (threadIdx.x == 5) t.v[0] = 2;
}
// One thread reads, one of another warp writes: in half of the orders the read comes first.
__global__ void one_reads_one_writes(float* y) {
  Line& t = shared_memory<Line>();
  if (threadIdx.x == 0) t.v[0] = 1;
  __syncthreads();
  if (threadIdx.x == 40) y[0] = t.v[0];
  if (threadIdx.x == 0) t.v[0] = 2;
}
// Two warps read, each synchronizes itself, and one of them writes.
__global__ void write_after_reads_of_two_warps(float* y) {
  Line& t = shared_memory<Line>();
  if (threadIdx.x == 0) t.v[0] = 1;
  __syncthreads();
  if (threadIdx.x % kWarp == 0) y[threadIdx.x] = t.v[0];
  __syncwarp();
  if (threadIdx.x == 0) t.v[0] = 2;
}
// A block's barrier orders nothing in another block.
__global__ void barriers_of_two_blocks(float* y) {
  if (blockIdx.x == 0 && threadIdx.x == 0) y[0] = 1;
  __syncthreads();
  if (blockIdx.x == 1 && threadIdx.x == 0) y[0] = 2;
}
// Lanes 0 to 15 synchronize, then lanes 8 to 23: through lane 8, lane 16 may read what lane 0 wrote.
__global__ void handed_on(float* y) {
  Line& t = shared_memory<Line>();
  const int lane = threadIdx.x;
  if (lane == 0) t.v[0] = 7;
  if (lane < 16) __syncwarp(0x0000ffffu);
  if (lane >= 8 && lane < 24) __syncwarp(0x00ffff00u);
  if (lane == 16) y[0] = t.v[0];
}
__global__ void bytes_side_by_side(uint8_t* y) {
  y[int64_t{blockIdx.x} * 64 + threadIdx.x] = uint8_t(threadIdx.x);
}
__global__ void one_place(float* y) { y[0] = float(blockIdx.x); }
__global__ void add_without_atomics(float* y) { y[0] += 1.f; }
__global__ void count(int* y) { atomicAdd(y, 1); }
__global__ void count_and_read(int* y) {
  atomicAdd(y, 1);
  if (threadIdx.x == 0) y[1] = y[0];
}
__global__ void barrier_of_half(float* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void two_barriers(float* y) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void mask_of_gone_lanes(float* y, const float* x) {
  float v = 0;
  if (threadIdx.x < 16) v = __shfl_xor_sync(kAllLanes, x[threadIdx.x], 1);
  y[threadIdx.x] = v;
}
__global__ void mask_without_itself(float* y, const float* x) {
  y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);
}
__global__ void shuffle_from_outside(float* y, const float* x) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 16);
}
__global__ void votes(float* y) {
  const uint32_t even = __ballot_sync(kAllLanes, threadIdx.x % 2 == 0);
  y[threadIdx.x] = even == 0x55555555u ? 1.f : 0.f;
}
__global__ void shared_unwritten(float* y) {
  Line& t = shared_memory<Line>();
  if (threadIdx.x < 32) t.v[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = t.v[threadIdx.x];
}
__global__ void shared_beyond(float* y, int n) {
  float* s = &shared_memory<float>();
  for (int i = threadIdx.x; i < n; i += 64) s[i] = float(i);
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void misaligned(float* y, const float* x) { y[0] = load_vector<Four>(x + 1).v[0]; }
__global__ void store_to_shared(float* y) {
  auto& s = shared_memory<Four>();
  store_vector(&s, Four{{1, 2, 3, 4}});
  y[0] = s.v[0];
}
__global__ void nothing() {}
__global__ void write_one(float* y, int64_t at) { y[at] = 1; }
__global__ void read_one(float* y, const float* x, int64_t at) { y[0] = x[at]; }

// ---- running them

// Device memory of n floats, filled with value(i), or uninitialized.
class Buffer {
 public:
  explicit Buffer(int n, bool filled = true) : n_(n) {
    cudaMalloc(&p_, size_t(n) * 4);
    if (!filled) return;
    std::vector<float> h(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) h[size_t(i)] = value(i);
    cudaMemcpy(p_, h.data(), size_t(n) * 4, cudaMemcpyDefault);
  }
  ~Buffer() { cudaFree(p_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  static float value(int i) { return float(i * 7919LL % 1000 / 500.0 + 0.5); }
  float* get() const { return static_cast<float*>(p_); }
  operator float*() const { return get(); }
  // Waits for the kernels.
  bool equals(const std::function<double(int)>& want, double tolerance = 0, int n = -1) const {
    std::vector<float> h(static_cast<size_t>(n < 0 ? n_ : n));
    cudaMemcpy(h.data(), p_, h.size() * 4, cudaMemcpyDefault);
    for (size_t i = 0; i < h.size(); ++i)
      if (!(std::abs(double(h[i]) - want(int(i))) <= tolerance)) return false;
    return true;
  }

 private:
  void* p_ = nullptr;
  int n_;
};

const auto kDone = [] { return cudaDeviceSynchronize() == cudaSuccess; };
double same(int i) { return double(Buffer::value(i)); }

template <int kDrop> bool run_normalize() {
  const int n = 300, rows = 3;
  const Buffer x(n * rows), y(n * rows);
  launch("planted", normalize_rows<kDrop>, {rows, kThreads, sizeof(Partial)}, nullptr, y.get(), x.get(), n);
  std::vector<double> sum(rows, 0);
  for (int i = 0; i < n * rows; ++i) sum[size_t(i / n)] += same(i);
  return y.equals([&](int i) { return same(i) / sum[size_t(i / n)]; }, 1e-6);
}
template <int kBeyond> bool run_twice(int n) {
  const Buffer x(n), y(n);
  launch("planted", twice<kBeyond>, {blocks_for(n, 4 * kThreads), kThreads}, nullptr, y.get(), x.get(), n);
  return y.equals([](int i) { return 2 * same(i); });
}
template <int kPad, bool kBarrier> bool run_transpose() {
  const Buffer x(64 * 64), y(64 * 64);
  launch("planted", transpose<kPad, kBarrier>, {4, kThreads, sizeof(Tile<kPad>)}, nullptr, y.get(), x.get(),
         64);
  return y.equals([](int i) { return same(i % 64 * 64 + i / 64); });
}
template <class... P, class... A> bool run_line(void (*kernel)(P...), int threads, A... args) {
  launch("planted", kernel, {1, threads, sizeof(Line)}, nullptr, args...);
  return kDone();
}
bool run_rounds(bool last) {
  const Buffer x(5 * 64), y(64);
  run_line(rounds, 64, y.get(), x.get(), 5, last);
  return y.equals([](int i) {
    float a = 0;
    for (int r = 0; r < 5; ++r) a += Buffer::value(r * 64 + 63 - i);
    return double(a);
  });
}
template <class... P, class... A> bool run(void (*kernel)(P...), int64_t blocks, int threads, A... args) {
  launch("planted", kernel, {blocks, threads}, nullptr, args...);
  return kDone();
}

// Makes a device the current one.
class OnDevice {
 public:
  explicit OnDevice(int device) { cudaSetDevice(device); }
  ~OnDevice() { cudaSetDevice(0); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
};
// Calls f with device 1's memory, which kernels of device 0 may touch.
template <class F> bool with_peer(F f, bool filled = true) {
  std::optional<Buffer> there;
  {
    const OnDevice second(1);
    there.emplace(8, filled);
    cudaDeviceSynchronize();
  }
  cudaDeviceEnablePeerAccess(1, 0);
  const bool right = f(there->get());
  cudaDeviceDisablePeerAccess(1);
  return right;
}

}  // namespace

const std::vector<Case>& cases() {
  static const auto& all = *new std::vector<Case>{
      {"right: sums of rows", {}, "", run_normalize<0>},
      {"right: vectors with a tail", {}, "", [] { return run_twice<0>(5000 - 3); }},
      {"right: transpose", {}, "", run_transpose<1, true>},
      {"right: rounds", {}, "", [] { return run_rounds(true); }},
      {"right: within a warp",
       {},
       "",
       [] {
         const Buffer x(32), y(32);
         run_line(within_a_warp, 32, y.get(), x.get(), true);
         return y.equals([](int i) { return same(i ^ 31); });
       }},
      {"right: within halves of a warp",
       {},
       "",
       [] {
         const Buffer x(32), y(32);
         run_line(halves_of_a_warp, 32, y.get(), x.get(), 15);
         return y.equals([](int i) { return same(i ^ 15); });
       }},
      {"right: count",
       {},
       "",
       [] {
         const Buffer y(1);
         cudaMemset(y, 0, 4);
         launch("planted", count, {4, 64}, nullptr, reinterpret_cast<int*>(y.get()));
         int n = 0;
         cudaMemcpy(&n, y, 4, cudaMemcpyDefault);
         return n == 256;
       }},
      {"right: bytes side by side",
       {},
       "",
       [] {
         const Buffer y(32);
         return run(bytes_side_by_side, 2, 64, reinterpret_cast<uint8_t*>(y.get()));
       }},
      {"right: write after many reads",
       {},
       "",
       [] {
         const Buffer y(64);
         run_line(write_after_many_reads, 64, y.get(), true);
         return y.equals([](int) { return 1; });
       }},
      {"right: handed on",
       {},
       "",
       [] {
         const Buffer y(1);
         run_line(handed_on, 32, y.get());
         return y.equals([](int) { return 7; });
       }},
      {"right: votes",
       {},
       "",
       [] {
         const Buffer y(64);
         run(votes, 1, 64, y.get());
         return y.equals([](int) { return 1; });
       }},
      {"right: a kernel writes pinned memory",
       {},
       "",
       [] {
         void* p = nullptr;
         cudaMallocHost(&p, 64);
         run(write_one, 1, 1, static_cast<float*>(p), int64_t(3));
         const bool right = static_cast<float*>(p)[3] == 1;
         cudaFreeHost(p);
         return right;
       }},
      {"right: a peer's memory is read and written",
       {},
       "",
       [] {
         return with_peer([](float* there) {
           const Buffer y(1);
           run(read_one, 1, 1, y.get(), there, int64_t(5));
           run(write_one, 1, 1, there, int64_t(3));
           float written = 0;
           cudaMemcpy(&written, there + 3, 4, cudaMemcpyDefault);
           return y.equals([](int) { return same(5); }) && written == 1;
         });
       }},
      {"barrier 1 missing", Kind::kRace, "", run_normalize<1>},
      {"barrier 2 missing", Kind::kRace, "", run_normalize<2>},
      {"both barriers missing", Kind::kRace, "", run_normalize<4>},
      {"transpose without a barrier", Kind::kRace, "planted.cu.cc", run_transpose<1, false>},
      {"rounds without the last barrier", Kind::kRace, "rounds(float*, float const*, int, bool)",
       [] { return run_rounds(false); }},
      {"within a warp, not synchronized", Kind::kRace, "shared memory",
       [] {
         const Buffer x(32), y(32);
         return run_line(within_a_warp, 32, y.get(), x.get(), false);
       }},
      {"between halves of a warp", Kind::kRace, "",
       [] {
         const Buffer x(32), y(32);
         return run_line(halves_of_a_warp, 32, y.get(), x.get(), 31);
       }},
      {"between warps", Kind::kRace, "",
       [] {
         const Buffer x(64), y(64);
         return run_line(between_warps, 64, y.get(), x.get());
       }},
      {"write after many reads, not synchronized", Kind::kRace, "",
       [] {
         const Buffer y(64);
         return run_line(write_after_many_reads, 64, y.get(), false);
       }},
      {"one reads, one writes", Kind::kRace, "",
       [] {
         const Buffer y(1);
         return run_line(one_reads_one_writes, 64, y.get());
       }},
      {"write after reads of two warps", Kind::kRace, "",
       [] {
         const Buffer y(64);
         return run_line(write_after_reads_of_two_warps, 64, y.get());
       }},
      {"barriers of two blocks", Kind::kRace, "",
       [] {
         const Buffer y(1);
         return run(barriers_of_two_blocks, 2, 64, y.get());
       }},
      {"blocks write one place", Kind::kRace, "op planted",
       [] {
         const Buffer y(1);
         return run(one_place, 2, 1, y.get());
       }},
      {"blocks add without atomics", Kind::kRace, "allocation",
       [] {
         const Buffer y(1);
         return run(add_without_atomics, 4, 1, y.get());
       }},
      {"a plain read beside atomics", Kind::kRace, "",
       [] {
         const Buffer y(2);
         return run(count_and_read, 2, 32, reinterpret_cast<int*>(y.get()));
       }},
      {"a barrier of half the block", Kind::kBarrier, "32 have left",
       [] {
         const Buffer y(64);
         return run(barrier_of_half, 1, 64, y.get());
       }},
      {"two barriers", Kind::kBarrier, "different barriers",
       [] {
         const Buffer y(64);
         return run(two_barriers, 1, 64, y.get());
       }},
      {"a mask with lanes that have gone elsewhere", Kind::kMask, "lanes",
       [] {
         const Buffer x(32), y(32);
         return run(mask_of_gone_lanes, 1, 32, y.get(), x.get());
       }},
      {"a mask without the caller", Kind::kMask, "not in its own mask",
       [] {
         const Buffer x(32), y(32);
         return run(mask_without_itself, 1, 32, y.get(), x.get());
       }},
      {"a mask with lanes that the block lacks", Kind::kMask, "the block has not",
       [] {
         const Buffer x(32), y(32);
         return run(mask_of_gone_lanes, 1, 16, y.get(), x.get());
       }},
      {"a shuffle from outside of its mask", Kind::kMask, "outside of its mask",
       [] {
         const Buffer x(32), y(32);
         return run(shuffle_from_outside, 1, 32, y.get(), x.get());
       }},
      {"shared memory read, not written", Kind::kUnwritten, "shared memory, byte",
       [] {
         const Buffer y(64);
         return run_line(shared_unwritten, 64, y.get());
       }},
      {"4 bytes beyond shared memory", Kind::kOutOfBounds, "256 bytes of shared memory",
       [] {
         const Buffer y(64);
         return run_line(shared_beyond, 64, y.get(), 65);
       }},
      {"more shared memory than the launch gives", Kind::kSharedMemory, "wants 256 bytes",
       [] {
         const Buffer y(64);
         return run(shared_unwritten, 1, 64, y.get());
       }},
      {"a misaligned vector", Kind::kMisaligned, "16 bytes",
       [] {
         const Buffer x(8), y(1);
         return run(misaligned, 1, 1, y.get(), x.get());
       }},
      {"a vector stored to shared memory as to global memory", Kind::kSharedMemory, "store_vector",
       [] {
         const Buffer y(1);
         return run_line(store_to_shared, 4, y.get());
       }},
      {"fresh memory read", Kind::kUnwritten, "byte 40",
       [] {
         const Buffer x(1000, false), y(1);
         return run(read_one, 1, 1, y.get(), x.get(), int64_t(10));
       }},
      {"1 element beyond, read", Kind::kOutOfBounds, "1 bytes beyond",
       [] {
         const Buffer x(1021), y(1);
         return run(read_one, 1, 1, y.get(), x.get(), int64_t(1021));
       }},
      {"1 element beyond, written", Kind::kOutOfBounds, "1 bytes beyond",
       [] {
         const Buffer y(1024);
         return run(write_one, 1, 1, y.get(), int64_t(1024));
       }},
      {"1 element before", Kind::kOutOfBounds, "",
       [] {
         const Buffer y(1021);
         return run(write_one, 1, 1, y.get(), int64_t(-1));
       }},
      {"a tail that is too long by 1", Kind::kOutOfBounds, "", [] { return run_twice<1>(1021); }},
      {"freed memory written", Kind::kOutOfBounds, "which was freed",
       [] {
         float* p;
         {
           const Buffer y(1021);
           p = y.get();
         }
         return run(write_one, 1, 1, p, int64_t(0));
       }},
      {"the host's memory read", Kind::kHostMemory, "not the device's",
       [] {
         const std::vector<float> host(4, 1.f);
         const Buffer y(1);
         return run(read_one, 1, 1, y.get(), host.data(), int64_t(0));
       }},
      {"the memory of a device that is no peer, read", Kind::kOutOfBounds,
       "reads memory of a device that is no peer",
       [] {
         return with_peer([](const float* there) {
           cudaDeviceDisablePeerAccess(1);
           const Buffer y(1);
           return run(read_one, 1, 1, y.get(), there, int64_t(0));
         });
       }},
      {"the memory of a device that is no peer, written", Kind::kOutOfBounds, "memory device 1, allocation",
       [] {
         return with_peer([](float* there) {
           cudaDeviceDisablePeerAccess(1);
           return run(write_one, 1, 1, there, int64_t(0));
         });
       }},
      {"a peer in the other direction", Kind::kOutOfBounds, "memory of a device that is no peer",
       [] {
         return with_peer([](float*) {
           const Buffer here(8);
           const OnDevice second(1);
           return run(write_one, 1, 1, here.get(), int64_t(0));
         });
       }},
      {"1 element beyond a peer's block", Kind::kOutOfBounds, "1 bytes beyond",
       [] { return with_peer([](float* there) { return run(write_one, 1, 1, there, int64_t(8)); }); }},
      {"fresh memory of a peer read", Kind::kUnwritten, "device 1",
       [] {
         return with_peer(
             [](const float* there) {
               const Buffer y(1);
               return run(read_one, 1, 1, y.get(), there, int64_t(0));
             },
             false);
       }},
      {"blocks write one place of a peer", Kind::kRace, "device 1",
       [] { return with_peer([](float* there) { return run(one_place, 2, 1, there); }); }},
  };
  return all;
}

void launch_nothing(int64_t blocks, int threads, int64_t shared_bytes) {
  launch("planted", nothing, {blocks, threads, shared_bytes}, nullptr);
}

}  // namespace planted
