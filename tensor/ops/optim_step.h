// Raw ops on lists of tensors (multi-tensor ops, as PyTorch's _foreach ops): the interface of optimizer step
// kernels (optim/optimizers); moving averages, gradient accumulation, norms, hashes, clipping, and loss scaling.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// One parameter of a step.
struct StepItem {
  Tensor param, grad;
  std::array<Tensor, 3> state;         // of dtype step_dtype(param.dtype())
  int64_t step = 1;                    // the number of this step, from 1
  std::array<double, 2> numbers = {};  // scalar state of the parameter before this step
  // Optional state on a CUDA device, for captured steps: on_device f64[3] = the number of the last step and
  // `numbers`, which the kernel updates. The kernel does nothing if found f32[] is defined and not 0. lr f64[]
  // replaces the learning rate of the options. Either all items have on_device or none; `found` and `lr` of the
  // first item apply to all.
  Tensor on_device, found, lr;
  // i64[n], ascending and distinct: a sparse gradient [n,...] of these rows of the parameter; other rows are not
  // updated. Undefined: a dense gradient. Only for optimizers with supports_sparse_rows, and on CPUs.
  Tensor rows = {};
};

// Lists the tensors of an item for KernelSlot.
template <class F> void for_each_tensor(const StepItem& item, F f) {
  f(item.param), f(item.grad);
  for (const Tensor& x : item.state) f(x);
  f(item.on_device), f(item.found), f(item.lr), f(item.rows);
}

// Returns the dtype in which a step computes and stores its state: f64 for f64, else f32.
constexpr DType step_dtype(DType param) { return param == DType::kF64 ? DType::kF64 : DType::kF32; }

// Checks that gradients have the shape, and gradients and states the dtype and device, required by their
// parameters.
// Errors: ShapeError, DTypeError, DeviceError.
void check_step_items(const char* op, const std::vector<StepItem>& items);

// Calls `run` for each group of items with one device and dtype, with row-major parameters and gradients
// (copies if necessary). Writes copies of parameters back and increments the parameters' versions.
void for_each_batch(const std::vector<StepItem>& items,
                    const std::function<void(const std::vector<StepItem>&)>& run);

// The slot of an optimizer's step kernel, declared in the optimizer's header. The first argument is any tensor of
// the step and selects the device. All tensors of a call are row-major, on one device and of one dtype. f16 and
// bf16 parameters are rounded once, at the end. Results do not depend on the number of threads.
template <class Options>
using StepSlot = KernelSlot<void(const Tensor&, const std::vector<StepItem>&, const Options&)>;

// Runs the step kernel for all items. The caller must include gradus/tensor/kernel.h.
template <class Options>
void run_step(const StepSlot<Options>& kernel, const std::vector<StepItem>& items, const Options& options) {
  for_each_batch(items,
                 [&](const std::vector<StepItem>& batch) { kernel(batch.front().param, batch, options); });
}

// Updates moving averages `param` of the tensors `grad`: param += weight * (grad - param).
// Errors: as check_step_items.
void average_step_(const std::vector<StepItem>& items, double weight);

// sums[i] += terms[i] (equal numbers of tensors), as add_. On a GPU, one launch adds tensors of equal layout.
// Errors: as add_.
void add_all_(const std::vector<Tensor>& sums, const std::vector<Tensor>& terms);

// Returns the p-norm of all tensors as one vector; p may be infinite. The result is 0-dimensional, f64 if the
// first tensor is f64, else f32, and does not depend on the number of threads. It is 0 without tensors.
// Errors: ValueError unless p > 0; DeviceError unless all are on one device.
Tensor norm_of(const std::vector<Tensor>& tensors, double p);
// Returns i64[n] on the tensors' device: for each tensor, of any dtype, the sum modulo 2^64 of the hashes of its words
// of 8 bytes (formulas/hash.h). The bytes are those of the elements in row-major order, then zeros. Dtype and shape do
// not count. At least one tensor.
// Errors: DeviceError unless all are on one device.
Tensor hashes_of(const std::vector<Tensor>& tensors);
// Multiplies all tensors by min(1, max_norm / (norm + 1e-6)), or by NaN if the norm is NaN. `norm` is the
// result of norm_of. Errors: DeviceError unless all tensors are on one device.
void clip_by_norm_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm);
// Clamps all elements to [-limit, limit]; NaN stays NaN. Errors: as clip_by_norm_.
void clip_by_value_(const std::vector<Tensor>& tensors, double limit);

// Multiplies all tensors by `factor`, or divides them by the scale of a LossScale on their device. Returns f32[]:
// 1 if a result is infinite or NaN, else 0; without tensors 0 on the CPU.
// Errors: DeviceError unless all are on one device.
Tensor unscale_(const std::vector<Tensor>& tensors, double factor);
Tensor unscale_(const std::vector<Tensor>& tensors, const Tensor& scale);

// Returns next_loss_scale() (formulas/loss_scale.h) of LossScales on a device. `found` is the result of
// unscale_; `latest` may be undefined. If the scale falls below kMinLossScale, the error is thrown when the
// host next synchronizes.
// Errors: DeviceError unless all are on one device.
Tensor move_scale(const Tensor& before, const Tensor& latest, const Tensor& found,
                  const LossScaleOptions& options);

// Kernels.
// clang-format off
extern StepSlot<double> average_step_kernel;
// sums[i] += terms[i]. sums[i] and terms[i] are dense with one layout and one floating dtype. The first argument
// selects the device.
extern KernelSlot<void(const Tensor&, const std::vector<Tensor>& sums, const std::vector<Tensor>& terms)>
    add_all_kernel;
// out (f32 or f64) = the p-norm. The tensors may have different dtypes.
extern KernelSlot<void(const Tensor& out, const std::vector<Tensor>&, double p)> norm_of_kernel;
// out (i64[n]) += the hashes.
extern KernelSlot<void(const Tensor& out, const std::vector<Tensor>&)> hashes_of_kernel;
extern KernelSlot<void(const Tensor& norm, const std::vector<Tensor>&, double max_norm)> clip_by_norm_kernel;
extern KernelSlot<void(const Tensor&, const std::vector<Tensor>&, double limit)> clip_by_value_kernel;
// found (f32[]) = 1 if a result is not finite, else 0. The tensors may have different dtypes. If `scale` is
// defined, the factor is the reciprocal of its first element.
extern KernelSlot<void(const Tensor& found, const std::vector<Tensor>&, double factor,
                       const Tensor& scale)> unscale_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& before, const Tensor& latest, const Tensor& found,
                       const LossScaleOptions&)> move_scale_kernel;
// clang-format on

}  // namespace gradus::raw
