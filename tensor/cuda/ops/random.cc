// Sets the CUDA slots of the random ops: converts tensors to the arguments of the launchers in
// kernels/random.h and kernels/multinomial.h, and queues them on the tensors' current stream. Numbers come
// from the counter-based Philox generator; the callers in gradus/tensor/ops/random.cc check dtypes, shapes
// and devices, and advance the generator. Invalid values in tensors throw when the host next waits.
#include "gradus/tensor/ops/random.h"

#include <algorithm>

#include "gradus/tensor/cuda/kernels/multinomial.h"
#include "gradus/tensor/cuda/kernels/random.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

std::span<const int64_t> sizes_of(const Tensor& x) {
  return {x.shape().begin(), static_cast<size_t>(x.dim())};
}
Strides strides_of(const Tensor& x) {
  Strides strides{};
  std::copy(x.strides().begin(), x.strides().end(), strides.begin());
  return strides;
}
// Returns the key for a kernel. An undefined key.base: the key is absolute; else the kernel adds the seed and
// stream in device memory.
DeviceKey on_device(const raw::DrawKey& key) {
  return {key.philox, key.base.defined() ? static_cast<const uint64_t*>(key.base.raw_ptr()) : nullptr};
}
DrawOutput output_of(const Tensor& out) { return {view_of(out), sizes_of(out), strides_of(out)}; }

void uniform_cuda(const Tensor& out, double low, double high, const raw::DrawKey& key) {
  uniform("uniform_", output_of(out), low, high, on_device(key), stream_for({&out, &key.base}));
}
void normal_cuda(const Tensor& out, double mean, double std, const raw::DrawKey& key) {
  normal("normal_", output_of(out), mean, std, on_device(key), stream_for({&out, &key.base}));
}
void bernoulli_cuda(const Tensor& out, double p, const raw::DrawKey& key) {
  bernoulli("bernoulli", output_of(out), p, on_device(key), stream_for({&out, &key.base}));
}
void dropout_mask_cuda(const Tensor& out, double p, const raw::DrawKey& key) {
  dropout_mask("dropout", output_of(out), p, on_device(key), stream_for({&out, &key.base}));
}
void randint_cuda(const Tensor& out, int64_t low, uint64_t range, const raw::DrawKey& key) {
  randint("randint", output_of(out), low, range, on_device(key), stream_for({&out, &key.base}));
}
void randperm_cuda(const Tensor& out, const raw::DrawKey& key) {
  randperm("randperm", out.ptr<int64_t>(), out.numel(), on_device(key), stream_for({&out, &key.base}));
}

void dropout_cuda(const Tensor& y, const Tensor& mask, const Tensor& x, double p, double scale,
                  const raw::DrawKey& key) {
  const Dropout d{
      sizes_of(x), {view_of(y), view_of(mask), view_of(x)}, {strides_of(y), strides_of(mask), strides_of(x)}};
  dropout("dropout", d, p, scale, on_device(key), stream_for({&y, &mask, &x, &key.base}));
}
void masked_scale_cuda(const Tensor& out, const Tensor& x, const Tensor& mask, double scale) {
  const ElementwiseArgs o = operands_of({&out, &x, &mask});
  masked_scale("masked_scale", o.index, o.views.data(), scale, o.stream);
}
void throw_invalid_probability(const ReportedValue& v) {
  raw::throw_invalid_probability(v.as_double(), v.position);
}

// u = 1 where u < p, else 0: the kernel of bernoulli with a tensor of probabilities.
void below_cuda(const Tensor& u, const Tensor& p) {
  const cudaStream_t stream = stream_for({&u, &p});
  bernoulli_from_uniform("bernoulli", view_of(u), view_of(p), u.numel(),
                         reports_of(u, stream, &throw_invalid_probability, 0), stream);
}

// Throws the error that a multinomial kernel reported. The n + 2 positions of a row stand for its n weights,
// for their total, and for the number of positive weights.
void throw_invalid_draw(const ReportedValue& v) {
  const int64_t n = v.per_row - reported_per_row(0), place = v.position % v.per_row;
  if (place < n) raw::throw_invalid_weight(v.as_double(), place);
  if (place == n) raw::throw_invalid_total(v.as_double());
  raw::throw_too_few_weights(v.limit, v.as_integer());
}

void multinomial_cuda(const Tensor& out, const Tensor& weights, const Tensor& uniform, bool replacement) {
  const cudaStream_t stream = stream_for({&out, &weights, &uniform});
  const int64_t n = weights.shape().back(), rows = weights.numel() / n;
  const Multinomial m{out.ptr<int64_t>(), weights.ptr<double>(), uniform.ptr<double>(), rows, n,
                      out.numel() / rows};
  const Tensor workspace = workspace_for(out, multinomial_workspace(m, replacement));
  multinomial("multinomial", m, replacement, workspace.raw_ptr(),
              reports_of(out, stream, &throw_invalid_draw, m.count, reported_per_row(n)), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::uniform_kernel.cuda = &uniform_cuda, raw::normal_kernel.cuda = &normal_cuda,
     raw::bernoulli_kernel.cuda = &bernoulli_cuda, raw::dropout_mask_kernel.cuda = &dropout_mask_cuda,
     raw::dropout_kernel.cuda = &dropout_cuda, raw::randint_kernel.cuda = &randint_cuda,
     raw::randperm_kernel.cuda = &randperm_cuda, raw::masked_scale_kernel.cuda = &masked_scale_cuda,
     raw::bernoulli_from_uniform_kernel.cuda = &below_cuda, raw::multinomial_kernel.cuda = &multinomial_cuda,
     true);

}  // namespace
}  // namespace gradus::cuda
