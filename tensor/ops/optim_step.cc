// Multi-tensor ops: check lists of tensors, group them by device and dtype, copy tensors that are not
// row-major, call one kernel per group, copy results back and increment versions. Gradients and states belong
// to the parameter of the same StepItem. Nothing here is recorded.
#include "gradus/tensor/ops/optim_step.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::raw {
namespace {

void check_fits(const char* op, const char* what, const Tensor& t, const Tensor& param, DType dtype,
                bool has_param_shape) {
  if (t.device() != param.device())
    throw DeviceError(op, what, " is ", describe(t), " but its parameter is ", describe(param));
  if (t.dtype() != dtype)
    throw DTypeError(op, what, " is ", describe(t), " but its parameter is ", describe(param));
  if (has_param_shape && t.shape() != param.shape())
    throw ShapeError(op, what, " is ", describe(t), " but its parameter is ", describe(param));
}

void check_one_device(const char* op, const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors)
    if (t.device() != tensors.front().device())
      throw DeviceError(op, "expected all tensors on one device, got ", describe(tensors.front()), " and ",
                        describe(t));
}

// Calls f with row-major tensors. Tensors that are not row-major are copied before and written back after.
template <class F> void with_row_major(const std::vector<Tensor>& tensors, F f) {
  std::vector<Tensor> dense;
  for (const Tensor& t : tensors) dense.push_back(contiguous(t));
  f(dense);
  for (size_t i = 0; i < tensors.size(); ++i) {
    dense[i].storage()->bump_version();
    if (!dense[i].is_same(tensors[i])) copy_(tensors[i], dense[i]);
  }
}

}  // namespace

void check_step_items(const char* op, const std::vector<StepItem>& items) {
  for (const StepItem& item : items) {
    if (!item.rows.defined()) check_fits(op, "the gradient", item.grad, item.param, item.param.dtype(), true);
    for (const Tensor& s : item.state)
      if (s.defined()) check_fits(op, "a state", s, item.param, step_dtype(item.param.dtype()), false);
  }
}

void for_each_batch(const std::vector<StepItem>& items,
                    const std::function<void(const std::vector<StepItem>&)>& run) {
  std::vector<bool> done(items.size());
  for (size_t first = 0; first < items.size(); ++first) {
    if (done[first]) continue;
    std::vector<StepItem> batch;
    std::vector<std::pair<Tensor, size_t>> copies;  // parameters that are not row-major, updated in copies
    for (size_t i = first; i < items.size(); ++i) {
      const Tensor& p = items[i].param;
      if (done[i] || p.device() != items[first].param.device() || p.dtype() != items[first].param.dtype())
        continue;
      done[i] = true;
      StepItem item = items[i];
      if (!p.is_row_major()) copies.emplace_back(p, batch.size());
      item.param = contiguous(p);
      item.grad = contiguous(item.grad);
      batch.push_back(std::move(item));
    }
    run(batch);
    for (const StepItem& item : batch) item.param.storage()->bump_version();
    for (const auto& [p, i] : copies) copy_(p, batch[i].param);
  }
}

void average_step_(const std::vector<StepItem>& items, double weight) {
  check_step_items("average_step", items);
  run_step(average_step_kernel, items, weight);
}

void add_all_(const std::vector<Tensor>& sums, const std::vector<Tensor>& terms) {
  const auto have_equal_layout = [](const Tensor& a, const Tensor& b) {
    return a.device() == b.device() && a.dtype() == b.dtype() && is_floating(a.dtype()) && a.is_dense() &&
           a.shape() == b.shape() && a.strides() == b.strides() && a.storage() != b.storage();
  };
  std::vector<bool> done(sums.size());
  for (size_t first = 0; first < sums.size(); ++first) {
    if (done[first]) continue;
    if (!have_equal_layout(sums[first], terms[first])) {
      add_(sums[first], terms[first]);
      continue;
    }
    std::vector<Tensor> to, from;  // on the device of sums[first]
    for (size_t i = first; i < sums.size(); ++i) {
      if (done[i] || sums[i].device() != sums[first].device() || !have_equal_layout(sums[i], terms[i]))
        continue;
      internal::check_destination("add_all_", sums[i], false);
      done[i] = true;
      to.push_back(sums[i]), from.push_back(terms[i]);
    }
    add_all_kernel(to.front(), to, from);
    for (const Tensor& sum : to) sum.storage()->bump_version();
  }
}

Tensor norm_of(const std::vector<Tensor>& tensors, double p) {
  if (tensors.empty()) return scalar(0);
  if (!(p > 0)) throw ValueError("norm_of", "expected p > 0, got ", p);
  check_one_device("norm_of", tensors);
  const Tensor& first = tensors.front();
  const Tensor out = empty({}, {first.dtype() == DType::kF64 ? DType::kF64 : DType::kF32, first.device()});
  std::vector<Tensor> dense;
  for (const Tensor& t : tensors) dense.push_back(contiguous(t));
  norm_of_kernel(out, dense, p);
  return out;
}

Tensor hashes_of(const std::vector<Tensor>& tensors) {
  check_one_device("hashes_of", tensors);
  std::vector<Tensor> dense;
  for (const Tensor& t : tensors) dense.push_back(contiguous(t));
  const Tensor out = zeros({int64_t(tensors.size())}, {DType::kI64, tensors.front().device()});
  hashes_of_kernel(out, dense);
  return out;
}

void clip_by_norm_(const std::vector<Tensor>& tensors, const Tensor& norm, double max_norm) {
  if (tensors.empty()) return;
  check_one_device("clip_by_norm_", tensors);
  with_row_major(tensors,
                 [&](const std::vector<Tensor>& dense) { clip_by_norm_kernel(norm, dense, max_norm); });
}

void clip_by_value_(const std::vector<Tensor>& tensors, double limit) {
  if (tensors.empty()) return;
  check_one_device("clip_by_value_", tensors);
  with_row_major(
      tensors, [&](const std::vector<Tensor>& dense) { clip_by_value_kernel(dense.front(), dense, limit); });
}

namespace {
// Multiplies by `factor`, or divides by the first element of `scale` if defined.
Tensor unscale_by(const std::vector<Tensor>& tensors, double factor, const Tensor& scale) {
  const Tensor found = empty({}, {DType::kF32, tensors.empty() ? kCPU : tensors.front().device()});
  if (tensors.empty()) return fill_(found, 0), found;
  check_one_device("unscale_", tensors);
  with_row_major(tensors,
                 [&](const std::vector<Tensor>& dense) { unscale_kernel(found, dense, factor, scale); });
  return found;
}
}  // namespace

Tensor unscale_(const std::vector<Tensor>& tensors, double factor) {
  return unscale_by(tensors, factor, Tensor());
}

Tensor unscale_(const std::vector<Tensor>& tensors, const Tensor& scale) {
  if (!tensors.empty()) check_one_device("unscale_", {tensors.front(), scale});
  return unscale_by(tensors, 1, scale);
}

Tensor move_scale(const Tensor& before, const Tensor& latest, const Tensor& found,
                  const LossScaleOptions& options) {
  check_one_device("move_scale", {before, found, latest.defined() ? latest : before});
  const Tensor out = empty(before.shape(), {before.dtype(), before.device()});
  move_scale_kernel(out, before, latest, found, options);
  return out;
}

}  // namespace gradus::raw
