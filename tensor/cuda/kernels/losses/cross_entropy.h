// Launches of cross-entropy (or nll_loss) with class indices and of its gradient, for the slots of
// tensor/ops/losses/cross_entropy.h, which has the formula. The elements E of scores are float, double, bf16
// or f16; all other floats are T = compute_t<E>. A target that is not in [0, classes) nor ignore_index gives
// NaN as loss and gradient; the forward reports it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/compute_type.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// The arguments of both launches, in device memory. A sample is a position of outer and inner.
template <class E> struct CrossEntropy {
  using T = compute_t<E>;
  const E* x;             // scores [outer, classes, inner]
  const int64_t* target;  // [outer, inner]
  const T* weight;        // [classes]; null: all 1
  T* stats;  // [samples, 2], aligned to 16, written by the forward: max(x) and log(sum e^(x - max(x))) over
             // classes. Null: x are log-probabilities
  int64_t outer, classes, inner;
  int64_t ignore_index;
  double smoothing;        // label smoothing, in [0, 1]
  ValueReports reports{};  // of invalid targets; only for the forward

  int64_t samples() const { return outer * inner; }
};

// Returns the bytes of workspace that both functions need, aligned to 16.
template <class E> int64_t cross_entropy_workspace(const CrossEntropy<E>& s);
enum class LossReduction { kMean, kSum, kNone };
// Writes s.stats, *total = the sum of the targets' weights, and loss: one element, the sum of the samples'
// losses, divided by *total for kMean; or with kNone [samples]. `op` is named in errors.
template <class E>
void cross_entropy(const char* op, const CrossEntropy<E>& s, LossReduction kind, compute_t<E>* loss,
                   compute_t<E>* total, void* workspace, cudaStream_t stream);
// dx, of x's shape, from dy, of loss's. Reads s.stats, and for kMean *total, which else may be null.
template <class E>
void cross_entropy_grad(const char* op, const CrossEntropy<E>& s, LossReduction kind, E* dx,
                        const compute_t<E>* dy, const compute_t<E>* total, void* workspace,
                        cudaStream_t stream);

}  // namespace gradus::cuda
