// ApplyOnCuda: runs the update rule of an optimizer (tensor/ops/formulas/optim_rule.h) over many parameters
// in one launch. Optimizers' step kernels are templates over ApplyOnCuda and its counterpart for CPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "gradus/tensor/cuda/kernels/optim_step.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/ops/step_items.h"

namespace gradus::cuda {

// Calls f.operator()<P>() with the C++ type P of a floating dtype. Errors: DTypeError for other dtypes.
template <class F> void dispatch_param(DType t, const char* op, F&& f) {
  if (t == DType::kF16) return f.template operator()<f16>();
  if (t == DType::kBF16) return f.template operator()<bf16>();
  dispatch_floating(t, op, std::forward<F>(f));
}

// `items` are not empty, row-major, without `rows`, on one device and of one dtype P. make.rule<T>(numbers)
// creates the rule for an item's step number and scalars; T = compute_t<P>. Work is queued on the device's
// current stream.
// Errors: CudaError naming `op`.
struct ApplyOnCuda {
  // rule(p, sign * grad + decay * p, states) for each element p; sign is -1 to maximize, else 1.
  template <class Make>
  static void rule(const char* op, const std::vector<raw::StepItem>& items, double decay, bool maximize,
                   Make make) {
    for_each_group(op, items, make,
                   [&]<class P>(const auto& rule, const StepGroup& group, auto stream, auto device) {
                     step<P>(op, rule, maximize ? -1 : 1, decay, group.items, stream, device);
                   });
  }
  // For rules that first compute norms over each parameter, as LARS and LAMB: step_by_norms (optim_step.h).
  template <class Make>
  static void rule_by_norms(const char* op, const std::vector<raw::StepItem>& items, Make make) {
    for_each_group(
        op, items, make, [&]<class P>(const auto& rule, const StepGroup& group, auto stream, auto device) {
          const Tensor workspace = workspace_for(items.front().param, norms_workspace(group.items));
          step_by_norms<P>(op, rule, group.items, workspace.raw_ptr(), stream, device);
        });
  }

 private:
  // Calls f.operator()<P>(rule, group, stream, DeviceRules) for each group of items with equal numbers; if
  // the numbers are in device memory (Note [Steps that the device decides]), once for all.
  template <class Make, class F>
  static void for_each_group(const char* op, const std::vector<raw::StepItem>& items, const Make& make,
                             F&& f) {
    const cudaStream_t stream = stream_for_items(items);
    dispatch_param(items.front().param.dtype(), op, [&]<class P>() {
      using T = compute_t<P>;
      using Rule = rule_of<Make, T>;
      if (!items.front().on_device.defined()) {
        for (const StepGroup& group : groups_of(items))
          f.template operator()<P>(make.template rule<T>(group.numbers), group, stream, DeviceRules<Rule>{});
        return;
      }
      const DeviceSteps all = device_steps_of(items);
      const Tensor rules =
          workspace_for(items.front().param, static_cast<int64_t>(items.size() * sizeof(Rule)));
      auto* const device_rules = static_cast<Rule*>(rules.raw_ptr());
      begin_steps<T>(op, make, device_rules, all.found, all.lr, all.numbers, stream);
      f.template operator()<P>(make.template rule<T>({.step = 1, .more = {}}), all.group, stream,
                               DeviceRules<Rule>{device_rules, all.found});
    });
  }
};

}  // namespace gradus::cuda
