// MixUp, CutMix and RandomChoice on a Batch in host memory: input f32 [N, ...], target i64 [N]. Sample i is
// mixed with sample i - 1, sample 0 with the last one, in place if the batch is the sole owner of the input.
// The target becomes soft labels f32 [N, classes]. Random numbers come from the Context's generator.
#include "gradus/data/transforms/mixing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::data {
namespace {

using internal::RandomNumbers;

void check_options(const char* op, int64_t classes, double alpha) {
  if (classes < 1) throw ValueError(op, "num_classes must be at least 1, got ", classes);
  if (!(alpha > 0 && std::isfinite(alpha))) throw ValueError(op, "alpha must be above 0, got ", alpha);
}

// Checks the batch. `dims`: 4 for input [N, C, H, W], 0 for any input [N, ...].
void check_batch(const char* op, const Batch& batch, int dims) {
  const Tensor& x = batch.input;
  if (!x.defined() || !batch.target.defined())
    throw ValueError(op, "the batch has no ", x.defined() ? "targets" : "input");
  if (x.device() != kCPU) throw DeviceError(op, "expected a batch on cpu, got ", describe(x));
  if (x.dtype() != DType::kF32) throw DTypeError(op, "expected inputs f32, got ", describe(x));
  const bool fits = dims == 4 ? x.dim() == 4 : x.dim() >= 1;
  if (!fits || x.size(0) < 1 || !x.is_dense() || batch.target.dim() != 1 || batch.target.size(0) != x.size(0))
    throw ShapeError(op, "expected inputs [N,", dims == 4 ? "C,H,W" : "...", "] and targets [N], got inputs ",
                     describe(x), ", targets ", describe(batch.target));
}

// Returns the input in exclusively owned memory, with each sample's elements contiguous.
Tensor own_input(const Tensor& x) {
  refuse_capture("mixup", "the host mixes the samples; mix them before the step");
  const int64_t n = x.size(0), item = x.numel() / n;
  const bool samples_apart = n == 1 || x.stride(0) == item;
  if (x.is_sole_owner() && samples_apart) return x;
  Tensor owned = samples_apart ? empty_like(x) : empty(x.shape(), {DType::kF32});
  if (samples_apart)
    std::copy_n(x.ptr<float>(), x.numel(), owned.ptr<float>());
  else
    std::ranges::copy(x.to_vector<float>(), owned.ptr<float>());
  return owned;
}

// Returns r one_hot(labels[i]) + (1 - r) one_hot(labels[i - 1]) as f32 [N, classes], for labels i64 [N].
Tensor mixed_targets(const Tensor& labels, int64_t classes, float r) {
  const Tensor one_hot = soft_targets(labels, classes);
  const int64_t n = one_hot.size(0);
  Tensor mixed = empty(one_hot.shape(), {DType::kF32});
  for (int64_t i = 0; i < n; ++i) {
    const float* a = one_hot.ptr<float>() + i * classes;
    const float* b = one_hot.ptr<float>() + (i == 0 ? n - 1 : i - 1) * classes;
    float* to = mixed.ptr<float>() + i * classes;
    for (int64_t c = 0; c < classes; ++c) to[c] = r * a[c] + (1 - r) * b[c];
  }
  return mixed;
}

// Calls f(sample, previous, elements per sample) from the last sample to the first. For the first sample,
// `previous` is a copy of the last sample's old values.
template <class F> void for_each_pair(const Tensor& x, F&& f) {
  const int64_t n = x.size(0), item = x.numel() / n;
  float* first = x.ptr<float>();
  const std::vector<float> last(first + (n - 1) * item, first + n * item);
  for (int64_t i = n - 1; i >= 0; --i)
    f(first + i * item, i == 0 ? last.data() : first + (i - 1) * item, item);
}

}  // namespace

Tensor soft_targets(const Tensor& labels, int64_t classes) {
  if (labels.dtype() != DType::kI64)
    throw DTypeError("soft_targets", "expected class numbers i64, got labels ", describe(labels),
                     conversion_hint("labels", DType::kI64));
  if (labels.dim() != 1 || classes < 1)
    throw ShapeError("soft_targets", "expected labels [N] and at least one class, got ", describe(labels),
                     " and ", classes);
  const int64_t n = labels.size(0);
  Tensor soft = empty({n, classes}, {DType::kF32});
  std::fill_n(soft.ptr<float>(), soft.numel(), 0.f);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t label = labels.ptr<int64_t>()[i * labels.stride(0)];
    if (label < 0 || label >= classes)
      throw ValueError("soft_targets", "label ", i, " is ", label, ", expected 0 to ", classes - 1);
    soft.ptr<float>()[i * classes + label] = 1;
  }
  return soft;
}

MixUp::MixUp(MixUpOptions options) : options_(options) {
  check_options("MixUp", options.num_classes, options.alpha);
}

Batch MixUp::operator()(Batch batch) const {
  check_batch("MixUp", batch, 0);
  const float r = static_cast<float>(RandomNumbers().beta(options_.alpha));
  batch.target = mixed_targets(batch.target, options_.num_classes, r);
  batch.input = own_input(std::exchange(batch.input, {}));
  for_each_pair(batch.input, [r](float* x, const float* before, int64_t n) {
    for (int64_t k = 0; k < n; ++k) x[k] = r * x[k] + (1 - r) * before[k];
  });
  return batch;
}

CutMix::CutMix(CutMixOptions options) : options_(options) {
  check_options("CutMix", options.num_classes, options.alpha);
}

Batch CutMix::operator()(Batch batch) const {
  check_batch("CutMix", batch, 4);
  const int64_t channels = batch.input.size(1), height = batch.input.size(2), width = batch.input.size(3);
  RandomNumbers random;
  // The box has about 1 - r of the area; side is half its width and height, as a fraction of the image's.
  const double side = 0.5 * std::sqrt(1 - random.beta(options_.alpha));
  const int64_t x = random.uniform_int(width), y = random.uniform_int(height);
  const int64_t half_w = static_cast<int64_t>(side * static_cast<double>(width)),
                half_h = static_cast<int64_t>(side * static_cast<double>(height));
  const int64_t left = std::max<int64_t>(x - half_w, 0), right = std::min(x + half_w, width);
  const int64_t top = std::max<int64_t>(y - half_h, 0), bottom = std::min(y + half_h, height);
  const double cut =
      static_cast<double>((right - left) * (bottom - top)) / static_cast<double>(width * height);
  batch.target = mixed_targets(batch.target, options_.num_classes, static_cast<float>(1 - cut));
  batch.input = own_input(std::exchange(batch.input, {}));
  const int64_t of_c = batch.input.stride(1), of_y = batch.input.stride(2), of_x = batch.input.stride(3);
  for_each_pair(batch.input, [=](float* image, const float* before, int64_t) {
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = top; i < bottom; ++i)
        for (int64_t j = left; j < right; ++j) {
          const int64_t at = c * of_c + i * of_y + j * of_x;
          image[at] = before[at];
        }
  });
  return batch;
}

RandomChoice::RandomChoice(std::vector<std::function<Batch(Batch)>> choices) : choices_(std::move(choices)) {
  if (choices_.empty()) throw ValueError("RandomChoice", "needs something to choose from");
}

Batch RandomChoice::operator()(Batch batch) const {
  const int64_t choice = RandomNumbers().uniform_int(static_cast<int64_t>(choices_.size()));
  return choices_[static_cast<size_t>(choice)](std::move(batch));
}

}  // namespace gradus::data
