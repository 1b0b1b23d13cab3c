// Implementation of random tensors and of DeviceDraws. Each op checks its arguments, takes the key (seed,
// number of the draw) of the next draw from the generator of the calling thread's Context, also for empty
// results, and calls the device's kernel, which maps key and element index to a number by Philox. So results
// are equal on all devices, and the sequence of draws does not depend on shapes.
#include "gradus/tensor/ops/random.h"

#include <cmath>
#include <ranges>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace raw {
namespace {

// Returns the key of the generator's next draw, for a kernel on `device`. Within a DeviceDraws::Scope of the
// device and generator the key is relative to the state on the device.
DrawKey next_draw(Device device) {
  const Context& context = Context::current();
  if (const Capture* capture = recording_capture(); capture && capture->device() != device)
    refuse_capture("random",
                   "each replay would have the same random numbers, which are drawn on another device");
  const PhiloxKey key = context.generator->next();
  for (const auto& base : context.draw_bases | std::views::reverse)
    if (base->generator == context.generator && base->device_state.device() == device) {
      base->is_repeatable =
          base->is_repeatable && key.seed == base->start.seed && key.stream >= base->start.stream;
      return {{key.seed - base->start.seed, key.stream - base->start.stream}, base->device_state};
    }
  refuse_capture("random", "it draws from a generator that the step did not begin with");
  return {key};
}

void check_probability(const char* op, double p) {
  if (!(p >= 0 && p <= 1)) throw ValueError(op, "expected a probability between 0 and 1, got ", p);
}

}  // namespace

// Replicas with the same seed must have different dropout masks, so the replica is part of the key.
DrawKey next_dropout_draw(Device device) {
  DrawKey key = next_draw(device);
  key.philox.stream += uint64_t(Job::current()->replica().index) << 40;
  return key;
}

void uniform_(const Tensor& x, double low, double high) {
  check_floating("uniform_", "x", x);
  check_writable("uniform_", x);
  if (!(low <= high) || !std::isfinite(high - low))
    throw ValueError("uniform_", "expected low <= high, got ", low, " and ", high);
  const DrawKey key = next_draw(x.device());
  if (x.numel() == 0) return;
  uniform_kernel(x, low, high, key);
  x.storage()->bump_version();
}

void normal_(const Tensor& x, double mean, double std) {
  check_floating("normal_", "x", x);
  check_writable("normal_", x);
  if (!(std >= 0)) throw ValueError("normal_", "expected a standard deviation of at least 0, got ", std);
  const DrawKey key = next_draw(x.device());
  if (x.numel() == 0) return;
  normal_kernel(x, mean, std, key);
  x.storage()->bump_version();
}

Tensor bernoulli_mask(const Tensor& x, double p) {
  check_probability("bernoulli", p);
  Tensor mask = empty_like(x, DType::kBool);
  const DrawKey key = next_draw(x.device());
  if (mask.numel() > 0) bernoulli_kernel(mask, p, key);
  return mask;
}

Tensor dropout_mask(const Tensor& x, double p) {
  check_probability("dropout", p);
  return dropout_mask(x, p, next_dropout_draw(x.device()));
}

Tensor dropout_mask(const Tensor& x, double p, const DrawKey& key) {
  Tensor mask = empty_like(x, DType::kBool);
  if (mask.numel() > 0) dropout_mask_kernel(mask, p, key);
  return mask;
}

DropoutResult dropout(const Tensor& x, double p, double scale, const Tensor& out) {
  check_probability("dropout", p);
  check_floating("dropout", "x", x);
  DropoutResult d{out ? out : empty_like(x), empty_like(x, DType::kBool)};
  const DrawKey key = next_dropout_draw(x.device());
  if (x.numel() > 0) dropout_kernel(d.y, d.mask, x, p, scale, key);
  if (out) out.storage()->bump_version();
  return d;
}

void bernoulli_(const Tensor& x, double p) { copy_(x, bernoulli_mask(x, p)); }

Tensor masked_scale(const Tensor& x, const Tensor& mask, double scale, const Tensor& out) {
  check_floating("masked_scale", "x", x);
  check_bool("masked_scale", "mask", mask);
  Tensor y = out ? out : empty_result("masked_scale", x.dtype(), {&x, &mask});
  masked_scale_kernel(y, x, mask, scale);
  if (out) out.storage()->bump_version();
  return y;
}

}  // namespace raw

Tensor rand(const Shape& shape, TensorOptions options) {
  const OpCall call("rand");
  Tensor y = empty(shape, options);
  raw::uniform_(y);
  return y;
}
Tensor randn(const Shape& shape, TensorOptions options) {
  const OpCall call("randn");
  Tensor y = empty(shape, options);
  raw::normal_(y);
  return y;
}
Tensor rand_like(const Tensor& x) {
  const OpCall call("rand_like", {{"x", x}});
  Tensor y = empty_like(x);
  raw::uniform_(y);
  return y;
}
Tensor randn_like(const Tensor& x) {
  const OpCall call("randn_like", {{"x", x}});
  Tensor y = empty_like(x);
  raw::normal_(y);
  return y;
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, TensorOptions options) {
  const OpCall call("randint");
  if (low >= high) throw ValueError("randint", "expected low < high, got ", low, " and ", high);
  if (options.dtype == DType::kBool) throw DTypeError("randint", "is not defined for bool");
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  Tensor y = empty(shape, {DType::kI64, options.device});
  const raw::DrawKey key = raw::next_draw(y.device());
  if (y.numel() > 0) raw::randint_kernel(y, low, range, key);
  return raw::to(y, options.dtype);
}
Tensor randint(int64_t high, const Shape& shape, TensorOptions options) {
  const OpCall call("randint");
  return randint(0, high, shape, options);
}

Tensor randperm(int64_t n, TensorOptions options) {
  const OpCall call("randperm");
  if (n < 0) throw ValueError("randperm", "expected a length of at least 0, got ", n);
  Tensor y = empty({n}, {DType::kI64, options.device});
  const raw::DrawKey key = raw::next_draw(y.device());
  if (n > 0) raw::randperm_kernel(y, key);
  return raw::to(y, options.dtype);
}

Tensor bernoulli(const Tensor& p) {
  const OpCall call("bernoulli", {{"p", p}});
  check_floating("bernoulli", "p", p);
  const bool is_f64 = p.dtype() == DType::kF64;
  Tensor u = empty(p.shape(), {is_f64 ? DType::kF64 : DType::kF32, p.device()});
  raw::uniform_(u);
  if (u.numel() > 0) raw::bernoulli_from_uniform_kernel(u, raw::contiguous(raw::to(p, u.dtype())));
  return raw::to(u, p.dtype());
}

Tensor randint_like(const Tensor& x, int64_t low, int64_t high) {
  const OpCall call("randint_like", {{"x", x}});
  return randint(low, high, x.shape(), {x.dtype(), x.device()});
}

namespace {

void check_std(double std) {
  if (!(std >= 0)) throw ValueError("normal", "expected a standard deviation of at least 0, got ", std);
}

Tensor standard_normal(const Shape& shape, const Tensor& like) {
  check_floating("normal", "x", like);
  return randn(shape, {like.dtype(), like.device()});
}

}  // namespace

Tensor normal(const Tensor& mean, const Tensor& std) {
  const OpCall call("normal", {{"mean", mean}, {"std", std}});
  check_floating("normal", "mean", mean);
  return raw::add(mean,
                  raw::mul(std, standard_normal(broadcast_shapes(mean.shape(), std.shape(), "normal"), std)));
}
Tensor normal(const Tensor& mean, double std) {
  const OpCall call("normal", {{"mean", mean}});
  check_std(std);
  return raw::add(mean, raw::mul(standard_normal(mean.shape(), mean), std));
}
Tensor normal(double mean, const Tensor& std) {
  const OpCall call("normal", {{"std", std}});
  return raw::add(raw::mul(std, standard_normal(std.shape(), std)), mean);
}
Tensor normal(double mean, double std, const Shape& shape, TensorOptions options) {
  const OpCall call("normal");
  check_std(std);
  Tensor y = empty(shape, options);
  check_floating("normal", "y", y);
  raw::normal_(y, mean, std);
  return y;
}

Tensor multinomial(const Tensor& weights, int64_t count, MultinomialOptions options) {
  const OpCall call("multinomial", {{"weights", weights}});
  constexpr const char* kOp = "multinomial";
  check_floating(kOp, "weights", weights);
  if (weights.dim() < 1 || weights.dim() > 2 || weights.shape().back() == 0)
    throw ShapeError(kOp, "expected numbers [n] or [rows,n], got ", describe(weights));
  const int64_t n = weights.shape().back(), rows = weights.numel() / n;
  if (count < 1) throw ValueError(kOp, "expected a count of at least 1, got ", count);
  if (!options.replacement && count > n)
    throw ValueError(kOp, "cannot draw ", count, " of ", n, " without replacement: ", describe(weights));
  Shape s = weights.shape();
  s[s.size() - 1] = count;
  const Tensor y = empty(s, {DType::kI64, weights.device()});
  const Tensor uniform = empty({rows, options.replacement ? count : n}, {DType::kF64, weights.device()});
  raw::uniform_(uniform);
  if (y.numel() > 0)
    raw::multinomial_kernel(y, raw::contiguous(raw::to(weights, DType::kF64)), uniform, options.replacement);
  return y;
}

DeviceDraws::DeviceDraws(Device device) {
  const OpCall call("DeviceDraws");
  if (device.type != DeviceType::kCUDA && device != kCPU)
    throw DeviceError("DeviceDraws", "expected cpu or a CUDA device, got ", device);
  base_ = std::make_shared<DrawBase>(nullptr, empty({2}, {DType::kI64, device}));
}

// Queues writes of the generator's seed and number of draws to base_->device_state. Always writes both,
// because another stream may have written other values.
void DeviceDraws::send_state() {
  const OpCall call("DeviceDraws");
  const auto [seed, draws] = base_->generator->state();
  base_->start = {seed, draws};
  for (int64_t at : {0, 1})
    raw::fill_(view_as_strided(base_->device_state, {1}, {1}, at), static_cast<int64_t>(at ? draws : seed));
}

void DeviceDraws::repeat() {
  if (!count_)
    throw StateError("DeviceDraws",
                     "has no draws to repeat: no scope has ended, or the generator was seeded or set back "
                     "within the last one");
  send_state();
  base_->generator->set_state({base_->start.seed, base_->start.stream + *count_});
}

DeviceDraws::Scope::Scope(DeviceDraws& draws) : draws_(draws) {
  if (draws_.is_open_) throw StateError("DeviceDraws", "already counts draws: a scope of it lives");
  Context& context = Context::current();
  draws_.count_.reset();
  draws_.base_->generator = context.generator;
  draws_.base_->is_repeatable = true;
  draws_.send_state();
  context.draw_bases.push_back(draws_.base_);
  draws_.is_open_ = true;
}

DeviceDraws::Scope::~Scope() {
  std::erase(Context::current().draw_bases, draws_.base_);
  const DrawBase& base = *draws_.base_;
  const auto [seed, draws] = base.generator->state();
  if (base.is_repeatable && seed == base.start.seed && draws >= base.start.stream)
    draws_.count_ = draws - base.start.stream;
  draws_.is_open_ = false;
}

}  // namespace gradus
