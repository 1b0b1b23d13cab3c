// Launches of random number kernels (Philox), for the slots of tensor/ops/random.h. Element i of a draw,
// counted row by row, depends on the key and i only: Note [Draws] there. Views are device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::cuda {

// The key of a draw. Unless `base`, in device memory and aligned to 16, is null, kernels add base[0] to the
// seed and base[1] to the stream.
struct DeviceKey {
  PhiloxKey philox;
  const uint64_t* base = nullptr;
};
// Returns the seed and stream of a draw. On the device.
__device__ __forceinline__ PhiloxKey read(const DeviceKey& key) {
  if (!key.base) return key.philox;
  return {key.philox.seed + key.base[0], key.philox.stream + key.base[1]};
}

// The tensor that a draw fills, with any strides.
struct DrawOutput {
  View view;
  std::span<const int64_t> sizes;
  Strides strides;
};

// Uniform in [low, high), and normal; out is f64, f32, f16 or bf16.
void uniform(const char* op, const DrawOutput& out, double low, double high, const DeviceKey& key,
             cudaStream_t stream);
void normal(const char* op, const DrawOutput& out, double mean, double std, const DeviceKey& key,
            cudaStream_t stream);
// out (bool) = true with probability p; for dropout_mask p is rounded up to a multiple of 2^-16.
void bernoulli(const char* op, const DrawOutput& out, double p, const DeviceKey& key, cudaStream_t stream);
void dropout_mask(const char* op, const DrawOutput& out, double p, const DeviceKey& key, cudaStream_t stream);
// out (i64) = uniform integers in [low, low + range).
void randint(const char* op, const DrawOutput& out, int64_t low, uint64_t range, const DeviceKey& key,
             cudaStream_t stream);
// order[0 .. count-1] = a random permutation of 0 .. count - 1; count is at most 2^53.
void randperm(const char* op, int64_t* order, int64_t count, const DeviceKey& key, cudaStream_t stream);

// mask = dropout_mask with probability p, y = mask ? scale * x : 0. y and x are floating; y may be x.
struct Dropout {
  std::span<const int64_t> sizes;
  std::array<View, 3> views;  // y, mask, x
  std::array<Strides, 3> strides;
};
void dropout(const char* op, const Dropout& d, double p, double scale, const DeviceKey& key,
             cudaStream_t stream);
// y = mask ? scale * x : 0. views: y, x, mask (bool); `index` is their index space.
void masked_scale(const char* op, const StridedIndex& index, const View* views, double scale,
                  cudaStream_t stream);
// u = u < p ? 1 : 0, for `count` contiguous f64 or f32. p outside [0, 1] gives NaN and is reported.
void bernoulli_from_uniform(const char* op, View u, View p, int64_t count, const ValueReports& reports,
                            cudaStream_t stream);

}  // namespace gradus::cuda
