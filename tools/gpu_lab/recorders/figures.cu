// Times and rates: launches, events, waiting, memory, copies, graphs, large products; and occupancy, where
// the runtime's calculator is compared with cuda_occupancy.h, which needs no GPU.
#include <cublasLt.h>
#include <cuda_occupancy.h>

#include <algorithm>
#include <vector>

#include "recorder.h"

namespace {

__global__ void nothing() {}
__global__ void nothing_with(int, int, int, int, float*, float*, float*, float*) {}
struct Large {
  char bytes[2048];
};
__global__ void nothing_with_large(Large) {}
__global__ void copy16(float4* y, const float4* x, size_t n) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
    y[i] = x[i];
}
__global__ void copy4(float* y, const float* x, size_t n) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
    y[i] = x[i];
}
__global__ void copy_once16(float4* y, const float4* x, size_t n) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i];
}
__global__ void strided(float* y, const float* x, size_t n, int stride) {
  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i * size_t(stride)];
}
template <int kPad> __global__ void transpose(float* y, const float* x, int n) {
  __shared__ float t[32][32 + kPad];
  const int r = int(blockIdx.y) * 32, c = int(blockIdx.x) * 32, tx = int(threadIdx.x), ty = int(threadIdx.y);
  for (int k = ty; k < 32; k += 8) t[k][tx] = x[(r + k) * size_t(n) + c + tx];
  __syncthreads();
  for (int k = ty; k < 32; k += 8) y[(c + k) * size_t(n) + r + tx] = t[tx][k];
}
template <int kRegisters> __global__ void __launch_bounds__(256) uses_registers(float* p, int n) {
  float v[kRegisters];
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) v[i] = p[threadIdx.x + i * 256];
  for (int k = 0; k < n; ++k) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) v[i] = v[i] * v[(i + 1) % kRegisters] + 1.f;
  }
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) p[threadIdx.x + i * 256] = v[i];
}
__global__ void fused_multiply_adds(float* p, int n) {
  float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int k = 0; k < 32; ++k)
      a = a * 0.999f + 0.5f, b = b * 0.999f + 0.5f, c = c * 0.999f + 0.5f, d = d * 0.999f + 0.5f;
  }
  p[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

template <class F> double host_us(int times, F work) {
  work();
  MUST(cudaDeviceSynchronize());
  const double from = record::seconds();
  for (int i = 0; i < times; ++i) work();
  return (record::seconds() - from) / times * 1e6;
}

void launches(cudaStream_t s) {
  record::group = "launches";
  const auto both = [&](const char* asked, auto work) {
    for (int i = 0; i < 100; ++i) work();
    MUST(cudaStreamSynchronize(s));
    const double from = record::seconds();
    for (int i = 0; i < 2000; ++i) work();
    const double host = record::seconds() - from;
    MUST(cudaStreamSynchronize(s));
    const double all = record::seconds() - from;
    record::line(
        asked,
        "%.2f us of the host per launch while the queue is open, %.2f us per launch until all are done",
        host / 2000 * 1e6, all / 2000 * 1e6);
  };
  both("empty kernel", [&] { nothing<<<1, 32, 0, s>>>(); });
  both("empty kernel, 1056 blocks of 256", [&] { nothing<<<1056, 256, 0, s>>>(); });
  both("8 arguments", [&] { nothing_with<<<1, 32, 0, s>>>(1, 2, 3, 4, nullptr, nullptr, nullptr, nullptr); });
  both("an argument of 2 KiB", [&] { nothing_with_large<<<1, 32, 0, s>>>(Large{}); });
  both("empty kernel by cudaLaunchKernelEx", [&] {
    cudaLaunchConfig_t c{};
    c.gridDim = dim3(1), c.blockDim = dim3(32), c.stream = s;
    cudaLaunchKernelEx(&c, nothing);
  });
  cudaEvent_t e, untimed;
  MUST(cudaEventCreate(&e));
  MUST(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  both("cudaEventRecord, timed", [&] { cudaEventRecord(e, s); });
  both("cudaEventRecord, untimed", [&] { cudaEventRecord(untimed, s); });
  both("cudaStreamWaitEvent", [&] { cudaStreamWaitEvent(s, untimed, 0); });
  both("cudaMemsetAsync of 4 bytes", [&, p = static_cast<void*>(nullptr)]() mutable {
    if (!p) MUST(cudaMalloc(&p, 256));
    cudaMemsetAsync(p, 0, 4, s);
  });
  record::line("launch and cudaStreamSynchronize", "%.2f us", host_us(500, [&] {
                 nothing<<<1, 32, 0, s>>>();
                 cudaStreamSynchronize(s);
               }));
  record::line("cudaStreamSynchronize of an idle stream", "%.2f us",
               host_us(2000, [&] { cudaStreamSynchronize(s); }));
  record::line("cudaDeviceSynchronize of an idle device", "%.2f us",
               host_us(2000, [&] { cudaDeviceSynchronize(); }));
  record::line("cudaEventQuery", "%.2f us", host_us(2000, [&] { cudaEventQuery(untimed); }));
  record::line("cudaEventCreate and cudaEventDestroy", "%.2f us", host_us(2000, [&] {
                 cudaEvent_t x;
                 cudaEventCreate(&x);
                 cudaEventDestroy(x);
               }));
  record::line("cudaEventCreate and cudaEventDestroy, untimed", "%.2f us", host_us(2000, [&] {
                 cudaEvent_t x;
                 cudaEventCreateWithFlags(&x, cudaEventDisableTiming);
                 cudaEventDestroy(x);
               }));
  record::line("cudaStreamCreate and cudaStreamDestroy", "%.2f us", host_us(100, [&] {
                 cudaStream_t x;
                 cudaStreamCreate(&x);
                 cudaStreamDestroy(x);
               }));
  record::line("cudaGetDevice", "%.3f us", host_us(10000, [&] {
                 int d;
                 cudaGetDevice(&d);
               }));
  record::line("cudaSetDevice", "%.3f us", host_us(10000, [&] { cudaSetDevice(0); }));
  record::line("cudaGetLastError", "%.3f us", host_us(10000, [&] { cudaGetLastError(); }));
  record::line("cudaPointerGetAttributes", "%.3f us", host_us(2000, [&] {
                 cudaPointerAttributes a;
                 cudaPointerGetAttributes(&a, &e);
               }));
  record::line("cudaGetDeviceProperties", "%.2f us", host_us(20, [&] {
                 cudaDeviceProp p;
                 cudaGetDeviceProperties(&p, 0);
               }));
  record::line("cudaMemGetInfo", "%.2f us", host_us(100, [&] {
                 size_t a, b;
                 cudaMemGetInfo(&a, &b);
               }));
  float x = 0, *d;
  MUST(cudaMalloc(&d, 4));
  record::line("one number to the host: launch and cudaMemcpy of 4 bytes to pageable memory", "%.2f us",
               host_us(500, [&] {
                 nothing<<<1, 32>>>();
                 cudaMemcpy(&x, d, 4, cudaMemcpyDeviceToHost);
               }));
  float* pinned;
  MUST(cudaMallocHost(&pinned, 4));
  record::line("the same to pinned memory, asynchronously, then cudaStreamSynchronize", "%.2f us",
               host_us(500, [&] {
                 nothing<<<1, 32, 0, s>>>();
                 cudaMemcpyAsync(pinned, d, 4, cudaMemcpyDeviceToHost, s);
                 cudaStreamSynchronize(s);
               }));
}

void memory(cudaStream_t s) {
  record::group = "allocation";
  for (size_t size :
       {size_t(256), size_t(64) << 10, size_t(1) << 20, size_t(2) << 20, size_t(64) << 20, size_t(1) << 30}) {
    void* p;
    double a = 0, f = 0;
    for (int i = 0; i < 20; ++i) {
      const double t0 = record::seconds();
      MUST(cudaMalloc(&p, size));
      const double t1 = record::seconds();
      MUST(cudaFree(p));
      a += t1 - t0, f += record::seconds() - t1;
    }
    record::line(record::text("cudaMalloc, cudaFree of %zu", size).c_str(), "%.1f us, %.1f us", a / 20 * 1e6,
                 f / 20 * 1e6);
    record::line(record::text("cudaMallocAsync and cudaFreeAsync of %zu", size).c_str(), "%.2f us",
                 host_us(20, [&] {
                   cudaMallocAsync(&p, size, s);
                   cudaFreeAsync(p, s);
                 }));
    a = f = 0;
    if (size <= (size_t(64) << 20)) {
      for (int i = 0; i < 5; ++i) {
        const double t0 = record::seconds();
        MUST(cudaMallocHost(&p, size));
        const double t1 = record::seconds();
        MUST(cudaFreeHost(p));
        a += t1 - t0, f += record::seconds() - t1;
      }
      record::line(record::text("cudaMallocHost, cudaFreeHost of %zu", size).c_str(), "%.1f us, %.1f us",
                   a / 5 * 1e6, f / 5 * 1e6);
    }
  }
}

void copies(cudaStream_t s) {
  record::group = "copies, GB/s (of bytes copied; the device's own copies read and write each byte)";
  constexpr size_t kMost = size_t(1) << 30;
  char *a, *b, *pinned;
  MUST(cudaMalloc(&a, kMost));
  MUST(cudaMalloc(&b, kMost));
  MUST(cudaMallocHost(&pinned, kMost / 4));
  std::vector<char> pageable(kMost / 4, 1);
  MUST(cudaMemset(a, 1, kMost));
  for (size_t size :
       {size_t(4) << 10, size_t(64) << 10, size_t(1) << 20, size_t(16) << 20, size_t(256) << 20}) {
    const auto rate = [&](const char* asked, void* to, const void* from) {
      const double ms = record::median_ms(s, size > (32 << 20) ? 5 : 20,
                                          [&] { cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, s); });
      record::line(record::text("%s, %zu KiB", asked, size >> 10).c_str(), "%.2f (%.1f us)",
                   double(size) / ms / 1e6, ms * 1e3);
    };
    rate("pinned to device", a, pinned);
    rate("device to pinned", pinned, a);
    rate("pageable to device", a, pageable.data());
    rate("device to pageable", pageable.data(), a);
  }
  for (size_t size : {size_t(1) << 20, size_t(16) << 20, size_t(64) << 20, size_t(1) << 30}) {
    const auto rate = [&](const char* asked, auto work) {
      work();
      const double ms = record::median_ms(s, 20, work);
      record::line(record::text("%s, %zu MiB", asked, size >> 20).c_str(), "%.1f (%.1f us)",
                   double(size) / ms / 1e6, ms * 1e3);
    };
    const size_t n = size / 4;
    rate("cudaMemcpyAsync on the device", [&] { cudaMemcpyAsync(b, a, size, cudaMemcpyDeviceToDevice, s); });
    rate("cudaMemsetAsync", [&] { cudaMemsetAsync(b, 0, size, s); });
    auto *fa = reinterpret_cast<float*>(a), *fb = reinterpret_cast<float*>(b);
    auto *va = reinterpret_cast<float4*>(a), *vb = reinterpret_cast<float4*>(b);
    rate("kernel, float4, one each",
         [&] { copy_once16<<<unsigned((n / 4 + 255) / 256), 256, 0, s>>>(vb, va, n / 4); });
    rate("kernel, float4, 8 blocks per SM in a loop", [&] { copy16<<<132 * 8, 256, 0, s>>>(vb, va, n / 4); });
    rate("kernel, float, 8 blocks per SM in a loop", [&] { copy4<<<132 * 8, 256, 0, s>>>(fb, fa, n); });
    rate("kernel, float, every 8th (bytes stored x 8)",
         [&] { strided<<<unsigned((n / 8 + 255) / 256), 256, 0, s>>>(fb, fa, n / 8, 8); });
  }
  auto *fa = reinterpret_cast<float*>(a), *fb = reinterpret_cast<float*>(b);
  for (int pad : {0, 1}) {
    const double ms = record::median_ms(s, 20, [&] {
      if (pad)
        transpose<1><<<dim3(256, 256), dim3(32, 8), 0, s>>>(fb, fa, 8192);
      else
        transpose<0><<<dim3(256, 256), dim3(32, 8), 0, s>>>(fb, fa, 8192);
    });
    record::line(pad ? "transpose of 8192 x 8192 f32, padded tile"
                     : "transpose of 8192 x 8192 f32, tile without padding",
                 "%.1f (%.1f us)", 8192.0 * 8192 * 4 / ms / 1e6, ms * 1e3);
  }
  const double ms = record::median_ms(s, 10, [&] { fused_multiply_adds<<<132 * 8, 256, 0, s>>>(fb, 1000); });
  record::line("f32 multiply-adds on the plain units, TFLOP/s", "%.1f",
               132.0 * 8 * 256 * 1000 * 32 * 4 * 2 / ms / 1e9);
  MUST(cudaFree(a));
  MUST(cudaFree(b));
}

void graphs(cudaStream_t s) {
  record::group = "graphs";
  for (int nodes : {1, 10, 100, 1000}) {
    cudaGraph_t g;
    cudaGraphExec_t x;
    MUST(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; ++i)
      nothing_with<<<1, 32, 0, s>>>(1, 2, 3, 4, nullptr, nullptr, nullptr, nullptr);
    MUST(cudaStreamEndCapture(s, &g));
    const double t0 = record::seconds();
    MUST(cudaGraphInstantiate(&x, g, 0));
    const double t1 = record::seconds();
    MUST(cudaGraphUpload(x, s));
    MUST(cudaStreamSynchronize(s));
    const double launch = host_us(50, [&] { cudaGraphLaunch(x, s); });
    MUST(cudaStreamSynchronize(s));
    const double ms = record::median_ms(s, 20, [&] { cudaGraphLaunch(x, s); });
    cudaGraphExecUpdateResultInfo info;
    const double t2 = record::seconds();
    MUST(cudaGraphExecUpdate(x, g, &info));
    record::line(
        record::text("%d empty kernels one after the other", nodes).c_str(),
        "instantiate %.1f us, launch %.2f us of the host, run %.1f us = %.3f us per kernel, update %.1f us",
        (t1 - t0) * 1e6, launch, ms * 1e3, ms * 1e3 / nodes, (record::seconds() - t2) * 1e6);
    MUST(cudaGraphExecDestroy(x));
    MUST(cudaGraphDestroy(g));
  }
}

__global__ void random_values(void* p, size_t n, int type, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    uint64_t z = (i + seed) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const float v = float(int64_t(z >> 40)) / 8388608.f - 1.f;
    if (type == CUDA_R_64F) static_cast<double*>(p)[i] = v;
    if (type == CUDA_R_32F) static_cast<float*>(p)[i] = v;
    if (type == CUDA_R_16BF) static_cast<uint16_t*>(p)[i] = uint16_t(__float_as_uint(v) >> 16);
    if (type == CUDA_R_16F)
      static_cast<uint16_t*>(p)[i] = uint16_t((__float_as_uint(v) >> 16 & 0x8000) | 0x3000 | (z & 0x7ff));
  }
}
void products(cudaStream_t s) {
  record::group = "cuBLASLt, column-major TN, TFLOP/s";
  double t = record::seconds();
  cublasLtHandle_t handle;
  if (cublasLtCreate(&handle)) return;
  record::line("cublasLtCreate", "%.0f ms", (record::seconds() - t) * 1e3);
  char* workspace;
  constexpr size_t kWorkspace = 64 << 20;
  MUST(cudaMalloc(&workspace, kWorkspace));
  const struct {
    const char* name;
    cudaDataType_t type, scale;
    cublasComputeType_t compute;
    int64_t n;
  } all[] = {{"f32 8192", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 8192},
             {"tf32 8192", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 8192},
             {"f64 8192", CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, 8192},
             {"f16 8192", CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 8192},
             {"bf16 8192", CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 8192},
             {"bf16 2048", CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2048},
             {"bf16 512", CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 512},
             {"f32 2048", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2048},
             {"f32 512", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 512}};
  for (const auto& c : all) {
    const size_t bytes = size_t(c.n * c.n) * (c.type == CUDA_R_64F ? 8 : c.type == CUDA_R_32F ? 4 : 2);
    char *a, *b, *d;
    MUST(cudaMalloc(&a, bytes));
    MUST(cudaMalloc(&b, bytes));
    MUST(cudaMalloc(&d, bytes));
    random_values<<<512, 256, 0, s>>>(a, size_t(c.n * c.n), c.type, 1);
    random_values<<<512, 256, 0, s>>>(b, size_t(c.n * c.n), c.type, 2);
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t l;
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulDescCreate(&op, c.compute, c.scale);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatrixLayoutCreate(&l, c.type, uint64_t(c.n), uint64_t(c.n), c.n);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                         sizeof kWorkspace);
    cublasLtMatmulHeuristicResult_t r;
    int count = 0;
    t = record::seconds();
    cublasLtMatmulAlgoGetHeuristic(handle, op, l, l, l, l, preference, 1, &r, &count);
    const double first = (record::seconds() - t) * 1e6;
    t = record::seconds();
    for (int i = 0; i < 20; ++i)
      cublasLtMatmulAlgoGetHeuristic(handle, op, l, l, l, l, preference, 1, &r, &count);
    const double later = (record::seconds() - t) / 20 * 1e6;
    const float one = 1, zero = 0;
    const double done = 1, dzero = 0;
    const bool f64 = c.type == CUDA_R_64F;
    const auto work = [&] {
      cublasLtMatmul(handle, op, f64 ? static_cast<const void*>(&done) : &one, a, l, b, l,
                     f64 ? static_cast<const void*>(&dzero) : &zero, d, l, d, l, &r.algo, workspace,
                     kWorkspace, s);
    };
    work();
    MUST(cudaStreamSynchronize(s));
    const double ms = record::median_ms(s, 9, work), host = host_us(c.n > 4096 ? 5 : 200, work);
    MUST(cudaStreamSynchronize(s));
    record::line(c.name, "%.1f (%.3f ms; the host takes %.1f us; heuristic %.0f us at first, then %.1f us)",
                 2.0 * double(c.n) * double(c.n) * double(c.n) / ms / 1e9, ms, host, first, later);
    MUST(cudaFree(a));
    MUST(cudaFree(b));
    MUST(cudaFree(d));
  }
}

template <class K> void occupancy_of(const char* name, K kernel, const cudaDeviceProp& p) {
  cudaFuncAttributes f;
  MUST(cudaFuncGetAttributes(&f, kernel));
  MUST(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            int(p.sharedMemPerBlockOptin) - int(f.sharedSizeBytes)));
  MUST(cudaFuncGetAttributes(&f, kernel));
  int unequal = 0;
  for (int threads : {1, 31, 32, 33, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512, 640, 768, 1024})
    for (size_t shared :
         {size_t(0), size_t(1), size_t(128), size_t(1024), size_t(4224), size_t(16384), size_t(49152),
          size_t(65536), size_t(100000), size_t(115712), size_t(200000), size_t(232448)}) {
      if (threads > f.maxThreadsPerBlock) continue;
      int blocks = -1;
      const cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared);
      cudaGetLastError();
      cudaOccDeviceProp d{};
      d.computeMajor = p.major, d.computeMinor = p.minor, d.maxThreadsPerBlock = p.maxThreadsPerBlock,
      d.maxThreadsPerMultiprocessor = p.maxThreadsPerMultiProcessor;
      d.regsPerBlock = p.regsPerBlock, d.regsPerMultiprocessor = p.regsPerMultiprocessor,
      d.warpSize = p.warpSize, d.sharedMemPerBlock = p.sharedMemPerBlock;
      d.sharedMemPerMultiprocessor = p.sharedMemPerMultiprocessor, d.numSms = p.multiProcessorCount,
      d.sharedMemPerBlockOptin = p.sharedMemPerBlockOptin;
      d.reservedSharedMemPerBlock = p.reservedSharedMemPerBlock;
      cudaOccFuncAttributes a{};
      a.maxThreadsPerBlock = f.maxThreadsPerBlock, a.numRegs = f.numRegs,
      a.sharedSizeBytes = f.sharedSizeBytes, a.partitionedGCConfig = PARTITIONED_GC_OFF;
      a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN,
      a.maxDynamicSharedSizeBytes = size_t(f.maxDynamicSharedSizeBytes), a.numBlockBarriers = 1;
      cudaOccDeviceState state{};
      cudaOccResult r{};
      const cudaOccError o = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &d, &a, &state, threads, shared);
      const int header = o == CUDA_OCC_SUCCESS ? r.activeBlocksPerMultiprocessor : -2;
      if (header != blocks) {
        ++unequal;
        record::line(record::text("%s, %d threads, %zu bytes", name, threads, shared).c_str(),
                     "the runtime %d (%s), the header %d (status %d)", blocks, cudaGetErrorName(e), header,
                     int(o));
      } else if (shared == 0 || shared == 49152) {
        record::line(record::text("%s, %d threads, %zu bytes", name, threads, shared).c_str(), "both %d",
                     blocks);
      }
    }
  record::line(name, "registers %d, static shared %zu, most threads %d: %d of the combinations are unequal",
               f.numRegs, f.sharedSizeBytes, f.maxThreadsPerBlock, unequal);
}

}  // namespace

int main() {
  record::header("Times and rates", "cuBLASLt " + std::to_string(cublasLtGetVersion()));
  record::group = "start";
  double t = record::seconds();
  MUST(cudaFree(nullptr));
  record::line("first call (the context)", "%.0f ms", (record::seconds() - t) * 1e3);
  t = record::seconds();
  nothing<<<1, 1>>>();
  MUST(cudaDeviceSynchronize());
  record::line("first launch", "%.2f ms", (record::seconds() - t) * 1e3);
  cudaStream_t s;
  MUST(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  launches(s);
  memory(s);
  graphs(s);
  copies(s);
  products(s);
  record::group = "occupancy, blocks per multiprocessor";
  cudaDeviceProp p;
  MUST(cudaGetDeviceProperties(&p, 0));
  occupancy_of("empty", nothing, p);
  occupancy_of("tile", transpose<1>, p);
  occupancy_of("16 values", uses_registers<16>, p);
  occupancy_of("64 values", uses_registers<64>, p);
  occupancy_of("160 values", uses_registers<160>, p);
}
