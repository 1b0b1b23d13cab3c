// Sums, norms, clipping and scaling of many dense tensors of one dtype, f64, f32, f16 or bf16, in one launch.
// What a kernel finds, the next one reads on the device.
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

// Returns how many chunks these tensors have.
int64_t chunks_of(Gradients tensors);

// sums[i] = the sum of |x|^p over chunk i; for an infinite p the largest |x|. A NaN stays.
void power_sums(const char* op, double* sums, DType dtype, Gradients tensors, double p, cudaStream_t stream);
// norm (f64 or f32) = what the sums of n chunks, of any dtypes, come to.
void norm_of_sums(const char* op, const View& norm, const double* sums, int64_t n, double p,
                  cudaStream_t stream);

// x *= max_norm / (norm + 1e-6), unless that factor is 1 or more. norm is f64 or f32.
void clip_by_norm(const char* op, const View& norm, DType dtype, Gradients tensors, double max_norm,
                  cudaStream_t stream);
// x = x, at least -limit and at most limit. A NaN stays.
void clip_by_value(const char* op, DType dtype, Gradients tensors, double limit, cudaStream_t stream);

// x *= factor, or 1 / *scale if there is one; bad[i] = whether an element of chunk i is infinite or NaN then.
void unscale(const char* op, int32_t* bad, DType dtype, Gradients tensors, double factor, const double* scale,
             cudaStream_t stream);
// *found = 1 if one of n chunks is bad, else 0.
void any_bad(const char* op, float* found, const int32_t* bad, int64_t n, cudaStream_t stream);

// *now = raw::next_loss_scale(*before, *latest, *found). `latest` may be null. Reports a scale that is too small,
// at the number of skipped steps.
void move_scale(const char* op, raw::LossScale* now, const raw::LossScale* before,
                const raw::LossScale* latest, const float* found, const raw::LossScaleOptions& options,
                const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
