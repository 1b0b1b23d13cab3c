// Launches of sums, norms, clipping and scaling of many dense tensors of one dtype (f64, f32, f16 or bf16),
// all in one launch (multi-tensor apply, tensor_table.h). Results such as norms stay in device memory, where
// the next launch reads them, so the host does not wait. A chunk is the part of a tensor that one block
// computes; chunk i counts over all tensors. Pointers are device memory; `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/kernels/tensor_table.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"
#include "gradus/tensor/ops/loss_scale.h"

namespace gradus::cuda {

using Gradients = std::span<const ArraysOfTensor<1>>;

// a += b, for the arrays a and b of each tensor.
void add_all(const char* op, DType dtype, std::span<const ArraysOfTensor<2>> tensors, cudaStream_t stream);
// Returns the number of chunks of these tensors.
int64_t chunks_of(Gradients tensors);
// sums[i] = sum of |x|^p over chunk i; for an infinite p the largest |x|. NaN if an element is NaN.
void power_sums(const char* op, double* sums, DType dtype, Gradients tensors, double p, cudaStream_t stream);
// norm (one f64 or f32) = (sum of sums[0 .. n-1])^(1/p), or their maximum for an infinite p.
void norm_of_sums(const char* op, const View& norm, const double* sums, int64_t n, double p,
                  cudaStream_t stream);
// *sum += the hash of n bytes (raw::hashes_of), for each tensor: array 0 has the bytes, array 1 is `sum`, a uint64_t.
void add_hashes(const char* op, std::span<const ArraysOfTensor<2>> tensors, cudaStream_t stream);
// x *= max_norm / (norm + 1e-6) if that factor is below 1. norm: one f64 or f32.
void clip_by_norm(const char* op, const View& norm, DType dtype, Gradients tensors, double max_norm,
                  cudaStream_t stream);
// x = min(max(x, -limit), limit). NaN stays NaN.
void clip_by_value(const char* op, DType dtype, Gradients tensors, double limit, cudaStream_t stream);
// x *= 1 / *scale, or factor if `scale` is null; nonfinite[i] = (a result in chunk i is infinite or NaN).
void unscale(const char* op, int32_t* nonfinite, DType dtype, Gradients tensors, double factor,
             const double* scale, cudaStream_t stream);
// *found = 1 if nonfinite[i] is set for one of n chunks, else 0.
void any_nonfinite(const char* op, float* found, const int32_t* nonfinite, int64_t n, cudaStream_t stream);

// *now = raw::next_loss_scale(*before, *latest, *found != 0), the loss scale after a step. `latest`: the scale after
// the previous step of the same backward; null: there is none. Reports a scale below kMinLossScale
// (value_errors.h), with the number of skipped steps as position.
void move_scale(const char* op, raw::LossScale* now, const raw::LossScale* before,
                const raw::LossScale* latest, const float* found, const raw::LossScaleOptions& options,
                const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
