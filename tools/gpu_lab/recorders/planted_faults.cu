// Kernels that are right, and kernels with one fault each. Alone, the program says whether results are
// right on the device; under compute-sanitizer (record.sh does that) it shows which faults NVIDIA's checker
// finds:
//
//   planted_faults NAME    runs one of them; without a name, lists them
#include <cmath>
#include <functional>
#include <vector>

#include "recorder.h"

namespace {

constexpr int kThreads = 256;

__device__ float warp_sum(float v) {
  for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
// A sum over the block, where barrier number `kDrop` is missing.
template <int kDrop> __device__ float block_sum(float v) {
  __shared__ float partial[kThreads / 32];
  __shared__ float total;
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  if (kDrop != 1 && kDrop != 4) __syncthreads();
  if (threadIdx.x < 32) {
    float t = threadIdx.x < kThreads / 32 ? partial[threadIdx.x] : 0.f;
    t = warp_sum(t);
    if (threadIdx.x == 0) total = t;
  }
  if (kDrop != 2 && kDrop != 4) __syncthreads();
  const float t = total;
  if (kDrop != 3 && kDrop != 4) __syncthreads();
  return t;
}
// Two sums one after the other, so that the third barrier matters.
template <int kDrop> __global__ void softmax_rows(float* y, const float* x, int n) {
  const float* row = x + blockIdx.x * size_t(n);
  float a = 0;
  for (int i = int(threadIdx.x); i < n; i += kThreads) a += expf(row[i]);
  a = block_sum<kDrop>(a);
  float b = 0;
  for (int i = int(threadIdx.x); i < n; i += kThreads) b += expf(row[i]) / a;
  b = block_sum<kDrop>(b);
  for (int i = int(threadIdx.x); i < n; i += kThreads) y[blockIdx.x * size_t(n) + i] = expf(row[i]) / a / b;
}
template <int kBeyond> __global__ void gelu4(float* y, const float* x, int n) {
  const int i = int(blockIdx.x * kThreads + threadIdx.x) * 4;
  const auto f = [](float v) { return 0.5f * v * (1.f + erff(v * 0.70710678f)); };
  if (i + 4 <= n) {
    float4 v = *reinterpret_cast<const float4*>(x + i);
    v.x = f(v.x), v.y = f(v.y), v.z = f(v.z), v.w = f(v.w);
    *reinterpret_cast<float4*>(y + i) = v;
  } else {
    for (int k = i; k < n + kBeyond; ++k) y[k] = f(x[k]);
  }
}
template <int kPad, bool kBarrier> __global__ void transpose(float* y, const float* x, int n) {
  __shared__ float t[32][32 + kPad];
  const int r = int(blockIdx.y) * 32, c = int(blockIdx.x) * 32, tx = int(threadIdx.x) % 32,
            ty = int(threadIdx.x) / 32;
  for (int k = ty; k < 32; k += 8) t[k][tx] = x[(r + k) * n + c + tx];
  if (kBarrier) __syncthreads();
  for (int k = ty; k < 32; k += 8) y[(c + k) * n + r + tx] = t[tx][k];
}
// Each round fills a tile and reads a neighbour's element; the last barrier keeps the next round from
// overwriting early.
__global__ void rounds(float* y, const float* x, int n, bool late) {
  __shared__ float t[64];
  float a = 0;
  for (int r = 0; r < n; ++r) {
    t[threadIdx.x] = x[r * 64 + threadIdx.x];
    __syncthreads();
    a += t[63 - threadIdx.x];
    if (late) __syncthreads();
  }
  y[threadIdx.x] = a;
}
__global__ void between_blocks(float* y) { y[0] = float(blockIdx.x); }
__global__ void between_blocks_sum(float* y) { y[0] += 1.f; }
__global__ void same_value(float* y) { y[0] = 1.f; }
__global__ void count(int* y) { atomicAdd(y, 1); }
__global__ void divergent(float* y) {
  if (threadIdx.x < 32) __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void divergent_in_warp(float* y) {
  if (threadIdx.x < 16) __syncthreads();
  y[threadIdx.x] = 0;
}
__global__ void half_mask(float* y, const float* x) {
  float v = 0;
  if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
  y[threadIdx.x] = v;
}
__global__ void mask_without_itself(float* y, const float* x) {
  y[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, x[threadIdx.x], 1);
}
// Lanes of one warp through shared memory, without __syncwarp.
__global__ void within_a_warp(float* y, const float* x, bool sync) {
  __shared__ float t[32];
  t[threadIdx.x] = x[threadIdx.x];
  if (sync) __syncwarp();
  y[threadIdx.x] = t[31 - threadIdx.x];
}
__global__ void shared_unwritten(float* y) {
  __shared__ float t[64];
  if (threadIdx.x < 32) t[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = t[threadIdx.x];
}
__global__ void shared_beyond(float* y, int n) {
  extern __shared__ float s[];
  for (int i = int(threadIdx.x); i < n; i += 64) s[i] = float(i);
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];
}
__global__ void misaligned(float* y, const float* x) {
  const float4 v = *reinterpret_cast<const float4*>(x + 1);
  y[0] = v.x + v.y + v.z + v.w;
}
__global__ void write_one(float* y, long long at) { y[at] = 1; }
__global__ void read_one(float* y, const float* x, long long at) { y[0] = x[at]; }

float *x, *y;
std::vector<float> hx, hy;
constexpr int kCount = 64 * 1024;

void fetch() { MUST(cudaMemcpy(hy.data(), y, kCount * 4, cudaMemcpyDeviceToHost)); }
std::string worst(const std::function<double(int)>& want, int n) {
  fetch();
  double w = 0;
  for (int i = 0; i < n; ++i) {
    const double d = std::abs(want(i) - double(hy[size_t(i)]));
    w = d == d ? std::max(w, d) : 1e30;
  }
  return record::text("largest error %.3g", w);
}

template <int kDrop> std::string softmax() {
  const int n = 1000, rows = 32;
  softmax_rows<kDrop><<<rows, kThreads>>>(y, x, n);
  std::vector<double> sum(rows, 0);
  for (int r = 0; r < rows; ++r)
    for (int i = 0; i < n; ++i) sum[size_t(r)] += std::exp(double(hx[size_t(r * n + i)]));
  return worst([&](int i) { return std::exp(double(hx[size_t(i)])) / sum[size_t(i / n)]; }, rows * n);
}
template <int kBeyond> std::string gelu(int n) {
  gelu4<kBeyond><<<(n + 1023) / 1024, kThreads>>>(y, x, n);
  return worst(
      [&](int i) {
        const double v = hx[size_t(i)];
        return 0.5 * v * (1 + std::erf(v * 0.70710678));
      },
      n);
}
template <int kPad, bool kBarrier> std::string transposed() {
  transpose<kPad, kBarrier><<<dim3(8, 8), kThreads>>>(y, x, 256);
  return worst([&](int i) { return double(hx[size_t(i % 256 * 256 + i / 256)]); }, 256 * 256);
}
std::string round_trip(bool late) {
  rounds<<<1, 64>>>(y, x, 100, late);
  return worst(
      [&](int i) {
        float a = 0;
        for (int r = 0; r < 100; ++r) a += hx[size_t(r * 64 + 63 - i)];
        return double(a);
      },
      64);
}
float* exact(int n) {
  float* p;
  MUST(cudaMalloc(&p, size_t(n) * 4));
  return p;
}

const std::vector<std::pair<const char*, std::function<std::string()>>>& all() {
  static const std::vector<std::pair<const char*, std::function<std::string()>>> list = {
      {"right-softmax", [] { return softmax<0>(); }},
      {"right-gelu", [] { return gelu<0>(8000 - 3); }},
      {"right-transpose", [] { return transposed<1, true>(); }},
      {"right-transpose-without-padding", [] { return transposed<0, true>(); }},
      {"right-rounds", [] { return round_trip(true); }},
      {"right-count",
       [] {
         int n = 0;
         MUST(cudaMemset(y, 0, 4));
         count<<<4, 64>>>(reinterpret_cast<int*>(y));
         MUST(cudaMemcpy(&n, y, 4, cudaMemcpyDefault));
         return record::text("%d of 256", n);
       }},
      {"right-within-a-warp",
       [] {
         within_a_warp<<<1, 32>>>(y, x, true);
         return worst([](int i) { return double(hx[size_t(31 - i)]); }, 32);
       }},
      {"softmax-without-barrier-1", [] { return softmax<1>(); }},
      {"softmax-without-barrier-2", [] { return softmax<2>(); }},
      {"softmax-without-barrier-3", [] { return softmax<3>(); }},
      {"softmax-without-barriers", [] { return softmax<4>(); }},
      {"transpose-without-barrier", [] { return transposed<1, false>(); }},
      {"rounds-without-last-barrier", [] { return round_trip(false); }},
      {"blocks-write-one-place",
       [] {
         between_blocks<<<2, 1>>>(y);
         fetch();
         return record::text("%g", hy[0]);
       }},
      {"blocks-add-without-atomics",
       [] {
         MUST(cudaMemset(y, 0, 4));
         between_blocks_sum<<<1000, 1>>>(y);
         fetch();
         return record::text("%g of 1000", hy[0]);
       }},
      {"blocks-write-the-same-value",
       [] {
         same_value<<<2, 32>>>(y);
         fetch();
         return record::text("%g", hy[0]);
       }},
      {"barrier-of-half-the-block",
       [] {
         divergent<<<1, 64>>>(y);
         return std::string();
       }},
      {"barrier-of-half-a-warp",
       [] {
         divergent_in_warp<<<1, 64>>>(y);
         return std::string();
       }},
      {"mask-with-lanes-that-are-elsewhere",
       [] {
         half_mask<<<1, 32>>>(y, x);
         return std::string();
       }},
      {"mask-without-the-caller",
       [] {
         mask_without_itself<<<1, 32>>>(y, x);
         return std::string();
       }},
      {"within-a-warp-without-syncwarp",
       [] {
         within_a_warp<<<1, 32>>>(y, x, false);
         return worst([](int i) { return double(hx[size_t(31 - i)]); }, 32);
       }},
      {"shared-memory-read-unwritten",
       [] {
         shared_unwritten<<<1, 64>>>(y);
         fetch();
         return record::text("%g", hy[40]);
       }},
      {"shared-memory-4-bytes-beyond",
       [] {
         shared_beyond<<<1, 64, 256>>>(y, 65);
         return std::string();
       }},
      {"shared-memory-1000-bytes-beyond",
       [] {
         shared_beyond<<<1, 64, 256>>>(y, 314);
         return std::string();
       }},
      {"vector-misaligned",
       [] {
         misaligned<<<1, 1>>>(y, x);
         return std::string();
       }},
      {"read-of-fresh-memory",
       [] {
         float* p = exact(1000);
         read_one<<<1, 1>>>(y, p, 10);
         fetch();
         return record::text("%a", hy[0]);
       }},
      {"read-1-beyond",
       [] {
         float* p = exact(1021);
         MUST(cudaMemset(p, 0, 1021 * 4));
         read_one<<<1, 1>>>(y, p, 1021);
         return std::string();
       }},
      {"write-1-beyond",
       [] {
         write_one<<<1, 1>>>(exact(1021), 1021);
         return std::string();
       }},
      {"write-1-before",
       [] {
         write_one<<<1, 1>>>(exact(1021), -1);
         return std::string();
       }},
      {"write-into-the-next-block",
       [] {
         float *p = exact(1021), *q = exact(1021);
         write_one<<<1, 1>>>(p, q - p);
         return std::string();
       }},
      {"gelu-1-beyond",
       [] {
         float *a = exact(1021), *b = exact(1021);
         MUST(cudaMemset(a, 0, 1021 * 4));
         gelu4<1><<<1, kThreads>>>(b, a, 1021);
         return std::string();
       }},
      {"write-after-free",
       [] {
         float* p = exact(1021);
         MUST(cudaFree(p));
         write_one<<<1, 1>>>(p, 0);
         return std::string();
       }},
      {"leak",
       [] {
         exact(1021);
         return std::string();
       }},
  };
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    for (const auto& [name, run] : all()) std::printf("%s\n", name);
    return 0;
  }
  hx.resize(kCount), hy.resize(kCount);
  for (int i = 0; i < kCount; ++i) hx[size_t(i)] = float(i * 7919LL % 1000 / 500.0 - 1);
  MUST(cudaMalloc(&x, kCount * 4));
  MUST(cudaMalloc(&y, kCount * 4));
  MUST(cudaMemcpy(x, hx.data(), kCount * 4, cudaMemcpyDefault));
  MUST(cudaMemset(y, 0, kCount * 4));
  record::group = "alone";
  for (const auto& [name, run] : all())
    if (std::string(name) == argv[1]) {
      const std::string said = run();
      const cudaError_t launch = cudaGetLastError(), end = cudaDeviceSynchronize();
      record::line(name, "%s%s%s, %s", said.c_str(), said.empty() ? "" : ", ", cudaGetErrorName(launch),
                   cudaGetErrorName(end));
    }
  cudaFree(x);
  cudaFree(y);
}
