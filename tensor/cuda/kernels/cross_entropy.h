// Cross entropy between scores and class numbers, and its gradient (tensor/ops/losses/cross_entropy.h).
// T is float or double. Where a target is no class, the sample's loss and gradient are NaN, and the
// loss reports it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// Scores are dense and seen as [outer, classes, inner]; a sample is a position of outer and inner.
template <class T> struct CrossEntropy {
  const T* x;
  const int64_t* target;
  const T* weight;  // of the classes; null: all 1
  T* stats;  // of each sample its largest score and log(sum e^(x - largest)), aligned to 16 bytes; null
             // where scores are logarithms
  int64_t outer, classes, inner;
  int64_t ignore_index;
  double smoothing;
  ValueReports reports{};

  int64_t samples() const { return outer * inner; }
};

// Returns the bytes of workspace that both functions need, aligned to 16.
template <class T> int64_t cross_entropy_workspace(const CrossEntropy<T>& s);

// Writes the stats, the total weight of the targets, and the loss: the samples' mean or sum, or each one's.
enum class LossOf { kMean, kSum, kEach };
template <class T>
void cross_entropy(const char* op, const CrossEntropy<T>& s, LossOf kind, T* loss, T* total, void* workspace,
                   cudaStream_t stream);
// Reads the stats and, for the mean, the total.
template <class T>
void cross_entropy_grad(const char* op, const CrossEntropy<T>& s, LossOf kind, T* dx, const T* dy,
                        const T* total, void* workspace, cudaStream_t stream);

}  // namespace gradus::cuda
