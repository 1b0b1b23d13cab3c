// What optimizers' steps run their rules by on CUDA devices.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "gradus/tensor/cuda/kernels/optim_step.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/ops/step_items.h"

namespace gradus::cuda {

// Calls `f.operator()<P>()`. P is the type of parameters in memory.
template <class F> void dispatch_param(DType t, const char* op, F&& f) {
  if (t == DType::kF16) return f.template operator()<f16>();
  if (t == DType::kBF16) return f.template operator()<bf16>();
  dispatch_floating(t, op, std::forward<F>(f));
}

// Items are row-major, of one device and one dtype. `make.rule<T>(numbers)` returns the rule for an
// item (tensor/ops/formulas/optim_rule.h).
struct ApplyOnCuda {
  template <class Make>
  static void rule(const char* op, const std::vector<raw::StepItem>& items, double decay, bool maximize,
                   Make make) {
    each_group(op, items, make,
               [&]<class P>(const auto& rule, const StepGroup& group, auto stream, auto known) {
                 step<P>(op, rule, maximize ? -1 : 1, decay, group.items, stream, known);
               });
  }
  // Of rules with norms of each parameter.
  template <class Make>
  static void rule_by_norms(const char* op, const std::vector<raw::StepItem>& items, Make make) {
    each_group(op, items, make,
               [&]<class P>(const auto& rule, const StepGroup& group, auto stream, auto known) {
                 const Tensor workspace = workspace_for(items.front().param, norms_workspace(group.items));
                 step_by_norms<P>(op, rule, group.items, workspace.raw_ptr(), stream, known);
               });
  }

 private:
  // Calls f.operator()<P>(rule, group, stream, KnownOnDevice) for groups of items. Note [Steps that the
  // device decides]: items whose numbers lie there are one group.
  template <class Make, class F>
  static void each_group(const char* op, const std::vector<raw::StepItem>& items, const Make& make, F&& f) {
    const cudaStream_t stream = stream_for_items(items);
    dispatch_param(items.front().param.dtype(), op, [&]<class P>() {
      using T = compute_t<P>;
      using Rule = rule_of<Make, T>;
      if (!items.front().on_device.defined()) {
        for (const StepGroup& group : groups_of(items))
          f.template operator()<P>(make.template rule<T>(group.numbers), group, stream,
                                   KnownOnDevice<Rule>{});
        return;
      }
      const DecidedOnDevice all = decided_on_device(items);
      const Tensor rules =
          workspace_for(items.front().param, static_cast<int64_t>(items.size() * sizeof(Rule)));
      auto* const there = static_cast<Rule*>(rules.raw_ptr());
      begin_steps<T>(op, make, there, all.found, all.lr, all.numbers, stream);
      f.template operator()<P>(make.template rule<T>({.step = 1, .more = {}}), all.group, stream,
                               KnownOnDevice<Rule>{there, all.found});
    });
  }
};

}  // namespace gradus::cuda
