// Kernels of traffic.h.
#include "traffic.h"

#include <cuda_runtime_api.h>

#include "gradus/tensor/cuda/kernels/kernel.h"

namespace traffic {
namespace {

using namespace gradus::cuda;  // NOLINT

template <int pad> struct Tile {
  float v[32][32 + pad];
};
template <int pad> __global__ void transpose_tiles(float* y, const float* x) {
  auto& tile = shared_memory<Tile<pad>>();
  const int r = int(blockIdx.x) / 2 * 32, c = int(blockIdx.x) % 2 * 32;
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  for (int k = line; k < 32; k += 8) tile.v[k][lane] = x[(r + k) * 64 + c + lane];
  __syncthreads();
  for (int k = line; k < 32; k += 8) y[(c + k) * 64 + r + lane] = tile.v[lane][k];
}
__global__ void gather_every_eighth(float* y, const float* x) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  y[i] = x[i * 8];
}

struct Triple {
  double v[3];
};
struct Triples {
  Triple v[256];
};
__global__ void exchange_triples(Triple* y, const Triple* x) {
  auto& shared = shared_memory<Triples>();
  shared.v[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = shared.v[255 - threadIdx.x];
}

}  // namespace

Zeros::Zeros(int64_t bytes) {
  cudaMalloc(&p_, static_cast<size_t>(bytes));
  cudaMemset(p_, 0, static_cast<size_t>(bytes));
}
Zeros::~Zeros() { cudaFree(p_); }

void transpose(bool padded) {
  const Zeros x(64 * 64 * 4), y(64 * 64 * 4);
  auto *to = static_cast<float*>(y.data()), *from = static_cast<float*>(x.data());
  if (padded)
    launch("transpose", transpose_tiles<1>, {4, 256, sizeof(Tile<1>)}, nullptr, to, from);
  else
    launch("transpose", transpose_tiles<0>, {4, 256, sizeof(Tile<0>)}, nullptr, to, from);
  cudaDeviceSynchronize();
}
void every_eighth() {
  const Zeros x(512 * 8 * 4), y(512 * 4);
  launch("gather", gather_every_eighth, {2, 256}, nullptr, static_cast<float*>(y.data()),
         static_cast<const float*>(x.data()));
  cudaDeviceSynchronize();
}

void exchange_structs() {
  const Zeros x(sizeof(Triples)), y(sizeof(Triples));
  launch("exchange", exchange_triples, {1, 256, sizeof(Triples)}, nullptr, static_cast<Triple*>(y.data()),
         static_cast<const Triple*>(x.data()));
  cudaDeviceSynchronize();
}

}  // namespace traffic
