// CUDA kernels' callers for sums, norms, clipping and scaling of the gradients of many tensors, registered as
// the CUDA implementation of the ops in tensor/ops/optim_step.h. Tensors are grouped by dtype, and each group
// is passed to the launches of kernels/gradients.h on the current stream. Callers guarantee dense tensors on
// one device. The calls do not wait for the device. `some` is any of the tensors, which selects the device.
#include "gradus/tensor/cuda/kernels/gradients.h"

#include <algorithm>
#include <vector>

#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

// Returns the current stream of out's device, and records the use of all tensors on it (operands.h).
cudaStream_t stream_for_all(const Tensor& out, const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> all = {&out};
  for (const Tensor& x : tensors) all.push_back(&x);
  return stream_for(all);
}

// Calls f(dtype, tensors) for the tensors of each dtype.
template <class F> void by_dtype(const std::vector<Tensor>& tensors, F&& f) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    std::vector<ArraysOfTensor<1>> same;
    for (const Tensor& x : tensors)
      if (x.dtype() == dtype) same.push_back({{x.raw_ptr()}, x.numel()});
    if (!same.empty()) f(dtype, same);
  }
}

int64_t chunks_of_all(const std::vector<Tensor>& tensors) {
  int64_t chunks = 0;
  by_dtype(tensors, [&](DType, Gradients same) { chunks += chunks_of(same); });
  return chunks;
}

void add_all_cuda(const Tensor& some, const std::vector<Tensor>& sums, const std::vector<Tensor>& terms) {
  const cudaStream_t stream = stream_for_all(some, sums);
  stream_for_all(some, terms);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    std::vector<ArraysOfTensor<2>> same;
    for (size_t i = 0; i < sums.size(); ++i)
      if (sums[i].dtype() == dtype)
        same.push_back({{sums[i].raw_ptr(), terms[i].raw_ptr()}, sums[i].numel()});
    add_all("add_all_", dtype, same, stream);
  }
}

void norm_of_cuda(const Tensor& out, const std::vector<Tensor>& tensors, double p) {
  const cudaStream_t stream = stream_for_all(out, tensors);
  const int64_t chunks = chunks_of_all(tensors);
  const Tensor sums = empty({chunks}, {DType::kF64, out.device()});
  double* next = sums.ptr<double>();
  by_dtype(tensors, [&](DType dtype, Gradients same) {
    power_sums("norm_of", next, dtype, same, p, stream);
    next += chunks_of(same);
  });
  norm_of_sums("norm_of", view_of(out), sums.ptr<double>(), chunks, p, stream);
}

void hashes_of_cuda(const Tensor& out, const std::vector<Tensor>& tensors) {
  std::vector<ArraysOfTensor<2>> arrays;
  for (const Tensor& x : tensors)
    arrays.push_back({{x.raw_ptr(), out.ptr<int64_t>() + arrays.size()}, x.nbytes()});
  add_hashes("hashes_of", arrays, stream_for_all(out, tensors));
}

void clip_by_norm_cuda(const Tensor& norm, const std::vector<Tensor>& tensors, double max_norm) {
  const cudaStream_t stream = stream_for_all(norm, tensors);
  by_dtype(tensors, [&](DType dtype, Gradients same) {
    clip_by_norm("clip_by_norm_", view_of(norm), dtype, same, max_norm, stream);
  });
}

void clip_by_value_cuda(const Tensor& some, const std::vector<Tensor>& tensors, double limit) {
  const cudaStream_t stream = stream_for_all(some, tensors);
  by_dtype(tensors,
           [&](DType dtype, Gradients same) { clip_by_value("clip_by_value_", dtype, same, limit, stream); });
}

// Multiplies by `factor`, or by 1 / *scale if `scale` (f64, on the device) is defined.
void unscale_cuda(const Tensor& found, const std::vector<Tensor>& tensors, double factor,
                  const Tensor& scale) {
  const cudaStream_t stream = stream_for_all(found, tensors);
  const double* divisor = nullptr;
  if (scale.defined()) stream_for({&scale}), divisor = scale.ptr<double>();
  const int64_t chunks = chunks_of_all(tensors);
  const Tensor bad = empty({chunks}, {DType::kI32, found.device()});
  int32_t* next = bad.ptr<int32_t>();
  by_dtype(tensors, [&](DType dtype, Gradients same) {
    unscale("unscale_", next, dtype, same, factor, divisor, stream);
    next += chunks_of(same);
  });
  any_nonfinite("unscale_", found.ptr<float>(), bad.ptr<int32_t>(), chunks, stream);
}

// Called by the host when it next waits for the stream, if a loss scale is too small.
void throw_invalid_scale(const ReportedValue& v) { raw::throw_invalid_scale(v.as_double(), v.position); }

void move_scale_cuda(const Tensor& out, const Tensor& before, const Tensor& latest, const Tensor& found,
                     const raw::LossScaleOptions& options) {
  const cudaStream_t stream = stream_for({&out, &before, &latest, &found});
  const auto at = [](const Tensor& x) {
    return x.defined() ? static_cast<raw::LossScale*>(x.raw_ptr()) : nullptr;
  };
  move_scale("move_scale", at(out), at(before), at(latest), found.ptr<float>(), options,
             reports_of(out, stream, &throw_invalid_scale, 0), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::add_all_kernel.cuda = &add_all_cuda, raw::norm_of_kernel.cuda = &norm_of_cuda,
     raw::hashes_of_kernel.cuda = &hashes_of_cuda, raw::clip_by_norm_kernel.cuda = &clip_by_norm_cuda,
     raw::clip_by_value_kernel.cuda = &clip_by_value_cuda, raw::unscale_kernel.cuda = &unscale_cuda,
     raw::move_scale_kernel.cuda = &move_scale_cuda, true);

}  // namespace
}  // namespace gradus::cuda
