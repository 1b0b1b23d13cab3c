// What optimizers' steps run their rules by on CUDA devices.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "gradus/tensor/cuda/kernels/optim_step.h"
#include "gradus/tensor/cuda/ops/step_items.h"

namespace gradus::cuda {

// Calls `f.operator()<P>()`. P is the type of parameters in memory.
template <class F> void dispatch_param(DType t, const char* op, F&& f) {
  if (t == DType::kF16) return f.template operator()<f16>();
  if (t == DType::kBF16) return f.template operator()<bf16>();
  dispatch_floating(t, op, std::forward<F>(f));
}

// Items are row-major, of one device and one dtype. `make.operator()<T>(item)` returns the rule for an item.
struct ApplyOnCuda {
  template <class Make>
  static void rule(const char* op, const std::vector<raw::StepItem>& items, double decay, bool maximize,
                   Make make) {
    const cudaStream_t stream = stream_for_items(items);
    dispatch_param(items.front().param.dtype(), op, [&]<class P>() {
      for (const StepGroup& group : groups_of(items))
        step<P>(op, make.template operator()<compute_t<P>>(group.first), maximize ? -1 : 1, decay,
                group.items, stream);
    });
  }
  // Of rules with norms of each parameter.
  template <class Make>
  static void rule_by_norms(const char* op, const std::vector<raw::StepItem>& items, Make make) {
    const cudaStream_t stream = stream_for_items(items);
    dispatch_param(items.front().param.dtype(), op, [&]<class P>() {
      for (const StepGroup& group : groups_of(items)) {
        const Tensor workspace = workspace_for(group.first, norms_workspace(group.items));
        step_by_norms<P>(op, make.template operator()<compute_t<P>>(group.first), group.items,
                         workspace.raw_ptr(), stream);
      }
    });
  }
};

}  // namespace gradus::cuda
