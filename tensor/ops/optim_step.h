// Raw ops on all parameters of a group, or all gradients, at once: optimizer steps, whose kernels are in
// optim/optimizers, averages, sums, clipping.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// One parameter of a step.
struct StepItem {
  Tensor param, grad;
  std::array<Tensor, 3> state;         // of dtype step_dtype(param.dtype())
  int64_t step = 1;                    // the number of this step, counted from 1
  std::array<double, 2> numbers = {};  // more state, for the parameter as a whole, before this step
  // On CUDA devices these may be there instead: f64[3], the number of the last step and `numbers`,
  // which the kernel counts up. It does nothing where `found`, f32[], is defined and not 0. `lr`, f64[],
  // takes the place of the options' rate. All items have `on_device`, or none, and then the first one's
  // `found` and `lr` hold for all.
  Tensor on_device, found, lr;
  // i64[n], ascending, each once: the gradient [n,...] is that of these rows of the parameter, which are stepped
  // alone. Undefined: of all rows. Only for optimizers with steps_rows, and on CPUs.
  Tensor rows = {};
};

// Shows a kernel's observer the tensors of an item.
template <class F> void for_each_tensor(const StepItem& item, F f) {
  f(item.param), f(item.grad);
  for (const Tensor& x : item.state) f(x);
  f(item.on_device), f(item.found), f(item.lr), f(item.rows);
}

// Returns the dtype in which a step computes and keeps its state: f64 for f64, f32 for all others.
constexpr DType step_dtype(DType param) { return param == DType::kF64 ? DType::kF64 : DType::kF32; }

// Checks that gradients and states fit their parameters.
// Errors: ShapeError, DTypeError, DeviceError.
void check_step_items(const char* op, const std::vector<StepItem>& items);

// Calls `run` with the items of each device and dtype, all row-major, and bumps the parameters' versions.
void over_batches(const std::vector<StepItem>& items,
                  const std::function<void(const std::vector<StepItem>&)>& run);

// The slot of an optimizer's step. The optimizer's header declares it. The first argument is one of the
// step's tensors; its device is where the kernel runs. All tensors of one call have one device and one dtype,
// and are row-major. Parameters in f16 and bf16 are rounded once, at the end. Results are the same for any
// number of threads.
template <class Options>
using StepSlot = KernelSlot<void(const Tensor&, const std::vector<StepItem>&, const Options&)>;

// Steps all items. The caller includes gradus/tensor/kernel.h.
template <class Options>
void run_step(const StepSlot<Options>& kernel, const std::vector<StepItem>& items, const Options& options) {
  over_batches(items,
               [&](const std::vector<StepItem>& batch) { kernel(batch.front().param, batch, options); });
}

// Updates running averages. The averaged tensors take the gradients' places:
//   param += weight * (grad - param)
// Errors: as check_step_items.
void average_step_(const std::vector<StepItem>& items, double weight);

// Adds terms[i] to sums[i], as add_ does. Tensors that lie alike are added in one launch on a GPU.
// Errors: as add_.
void add_all_(const std::vector<Tensor>& sums, const std::vector<Tensor>& terms);

// Returns the p-norm of the elements of all tensors together; p may be infinite. The result is 0-dimensional,
// f32, or f64 if the first tensor is. It is the same for any number of threads.
// Errors: DeviceError unless all are on one device.
Tensor norm_of(const std::vector<Tensor>& tensors, double p);
// Multiplies every tensor by min(1, max_norm / (norm + 1e-6)).
void clip_by_norm_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm);
// Clamps every element to [-limit, limit].
void clip_by_value_(const std::vector<Tensor>& tensors, double limit);

// Multiplies every tensor by `factor`, or divides it by a LossScale on its device. Returns f32[]: 1 if an
// element is infinite or NaN then, else 0.
// Errors: DeviceError unless all are on one device.
Tensor unscale_(const std::vector<Tensor>& tensors, double factor);
Tensor unscale_(const std::vector<Tensor>& tensors, const Tensor& scale);

// Returns `moved` of LossScales on a device. `found` is what unscale_ has returned. `latest` may be
// undefined. Where the scale becomes too small, an error is thrown where the host next waits.
// Errors: DeviceError unless all are on one device.
Tensor move_scale(const Tensor& before, const Tensor& latest, const Tensor& found,
                  const LossScaleOptions& options);

// Kernels.
// clang-format off
extern StepSlot<double> average_step_kernel;
// sums[i] += terms[i]: dense, of one layout and one floating dtype each. The first argument is one of them.
extern KernelSlot<void(const Tensor&, const std::vector<Tensor>& sums, const std::vector<Tensor>& terms)>
    add_all_kernel;
// out (f32 or f64, dense) = the norm. The tensors may have several dtypes.
extern KernelSlot<void(const Tensor& out, const std::vector<Tensor>&, double p)> norm_of_kernel;
extern KernelSlot<void(const Tensor& norm, const std::vector<Tensor>&, double max_norm)> clip_by_norm_kernel;
extern KernelSlot<void(const Tensor&, const std::vector<Tensor>&, double limit)> clip_by_value_kernel;
// found (f32[]) = 1 if an element is not finite, else 0. The tensors may have several dtypes. Where `scale`
// is defined, the factor is 1 over its first element.
extern KernelSlot<void(const Tensor& found, const std::vector<Tensor>&, double factor,
                       const Tensor& scale)> unscale_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& before, const Tensor& latest, const Tensor& found,
                       const LossScaleOptions&)> move_scale_kernel;
// clang-format on

}  // namespace gradus::raw
