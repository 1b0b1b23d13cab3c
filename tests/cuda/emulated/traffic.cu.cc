#include "traffic.h"

#include <cuda_runtime_api.h>

#include <array>

#include "gradus/tensor/cuda/kernels/copy.h"
#include "gradus/tensor/cuda/kernels/elementwise.h"
#include "gradus/tensor/cuda/kernels/reduce.h"
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/ops/arithmetic.h"

namespace traffic {
namespace {

using namespace gradus::cuda;  // NOLINT
using gradus::DType;

template <int pad> struct Tile {
  float v[32][32 + pad];
};
template <int pad> __global__ void transpose_tiles(float* y, const float* x) {
  auto& tile = shared_memory<Tile<pad>>();
  const int r = int(block_index()) / 2 * 32, c = int(block_index()) % 2 * 32;
  const int lane = thread_index() % 32, line = thread_index() / 32;
  for (int k = line; k < 32; k += 8) tile.v[k][lane] = x[(r + k) * 64 + c + lane];
  sync_block();
  for (int k = line; k < 32; k += 8) y[(c + k) * 64 + r + lane] = tile.v[lane][k];
}
__global__ void gather_every_eighth(float* y, const float* x) {
  const int64_t i = block_index() * 256 + thread_index();
  y[i] = x[i * 8];
}

template <size_t n>
Nest nest_of(std::initializer_list<int64_t> sizes, const std::array<Strides, n>& strides) {
  return make_nest({sizes.begin(), sizes.size()}, strides);
}

template <class T> void add(int64_t bytes, DType dtype) {
  const Zeros y(bytes), a(bytes), b(bytes);
  const View views[] = {{y.data(), dtype}, {a.data(), dtype}, {b.data(), dtype}};
  const auto nest = nest_of<3>({bytes / gradus::size_of(dtype)}, {{{1}, {1}, {1}}});
  elementwise<float, float, float, float>("add", gradus::functors::Add{}, nest, views, nullptr);
  cudaDeviceSynchronize();
}

void sum(int64_t bytes, int64_t outer, int64_t n, int64_t inner) {
  const Zeros x(bytes), y(outer * inner * 4);
  const auto* p = static_cast<const float*>(x.data());
  const Zeros workspace(reduce_workspace<Sum<float>>(p, outer, n, inner));
  reduce("sum", Sum<float>{}, static_cast<float*>(y.data()), p, outer, n, inner, workspace.data(), nullptr);
  cudaDeviceSynchronize();
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

void add_f32(int64_t bytes) { add<float>(bytes, DType::kF32); }
void add_bf16(int64_t bytes) { add<gradus::bf16>(bytes, DType::kBF16); }
void add_strided(int64_t bytes) {
  const int64_t rows = bytes / 4 / 64;
  const Zeros y(bytes), a(bytes), b(bytes);
  const View views[] = {{y.data(), DType::kF32}, {a.data(), DType::kF32}, {b.data(), DType::kF32}};
  const auto nest = nest_of<3>({rows, 63}, {{{64, 1}, {64, 1}, {64, 1}}});
  elementwise<float, float, float, float>("add", gradus::functors::Add{}, nest, views, nullptr);
  cudaDeviceSynchronize();
}
void to_channels_last(int64_t bytes) {
  const int64_t pixels = bytes / 4 / 64;
  const Zeros y(bytes), x(bytes);
  const View views[] = {{y.data(), DType::kF32}, {x.data(), DType::kF32}};
  copy("copy", nest_of<2>({64, pixels}, {{{1, 64}, {pixels, 1}}}), views, nullptr);
  cudaDeviceSynchronize();
}
void copy_rows_with_gaps(int64_t bytes) {
  const int64_t rows = bytes / 4 / 1024;
  const Zeros y(bytes), x(bytes);
  const View views[] = {{y.data(), DType::kF32}, {x.data(), DType::kF32}};
  copy("copy", nest_of<2>({rows, 1000}, {{{1000, 1}, {1024, 1}}}), views, nullptr);
  cudaDeviceSynchronize();
}
void fill(int64_t bytes) {
  const Zeros y(bytes);
  const float one = 1;
  gradus::cuda::fill("fill", nest_of<1>({bytes / 4}, {{{1}}}), {y.data(), DType::kF32}, &one, nullptr);
  cudaDeviceSynchronize();
}
void sum_rows(int64_t bytes, int64_t n) { sum(bytes, bytes / 4 / n, n, 1); }
void sum_columns(int64_t bytes, int64_t inner) { sum(bytes, 1, bytes / 4 / inner, inner); }

}  // namespace traffic
