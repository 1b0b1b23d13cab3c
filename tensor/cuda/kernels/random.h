// Random numbers, as slots of tensor/ops/random.h want them.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::cuda {

// The key of a draw. Where `base` is not null, kernels add the seed and the stream that they read there. It
// is aligned to both.
struct DeviceKey {
  PhiloxKey philox;
  const uint64_t* base = nullptr;
};

// What a draw fills: its elements are numbered row by row, and lie as the strides say.
struct Drawn {
  View view;
  std::span<const int64_t> sizes;
  Strides strides;
};

// f64, f32, f16, bf16.
void uniform(const char* op, const Drawn& out, double low, double high, const DeviceKey& key,
             cudaStream_t stream);
void normal(const char* op, const Drawn& out, double mean, double std, const DeviceKey& key,
            cudaStream_t stream);
// bool.
void bernoulli(const char* op, const Drawn& out, double p, const DeviceKey& key, cudaStream_t stream);
void dropout_mask(const char* op, const Drawn& out, double p, const DeviceKey& key, cudaStream_t stream);
// i64.
void randint(const char* op, const Drawn& out, int64_t low, uint64_t range, const DeviceKey& key,
             cudaStream_t stream);

// A random order of 0 .. count - 1, which is at most 2^53.
void randperm(const char* op, int64_t* order, int64_t count, const DeviceKey& key, cudaStream_t stream);

// Draws a mask as dropout_mask does, and y = scale x where it holds, else 0. y may be x, element for element.
struct Dropout {
  std::span<const int64_t> sizes;
  std::array<View, 3> views;  // y, mask, x
  std::array<Strides, 3> strides;
};
void dropout(const char* op, const Dropout& d, double p, double scale, const DeviceKey& key,
             cudaStream_t stream);
// views: y, x, mask (bool). y = scale x where the mask holds, else 0.
void masked_scale(const char* op, const StridedIndex& index, const View* views, double scale,
                  cudaStream_t stream);
// u = 1 where u < p, else 0; NaN where p is no probability, which is reported. Both row by row, f64 or f32.
void below(const char* op, View u, View p, int64_t count, const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
