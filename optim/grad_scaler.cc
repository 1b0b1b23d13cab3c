// GradScaler: dynamic loss scaling. backward() marks each gradient with the factor that multiplies it;
// unscale() divides marked gradients in place and finds infinities and NaN; step() then skips or makes the
// optimizer's step and updates the scale. Not thread-safe. On one GPU all of this is queued without waiting:
// Note [Device of the scale].
#include "gradus/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>

#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/optim/clip_grad.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/formulas/loss_scale.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::optim {

namespace {

// Note [Device of the scale]
// The scale lives on the host until a backward has all its parameters on one GPU. From then on the scale, the
// found-inf flag and the next scale live on that GPU: kernels read them there, and the host queues the next
// step without waiting. A tensor of scales is written once. The mark of a scaled gradient refers to such a
// tensor, so the mark stays right when the scale changes. A backward on the host or on another device reads
// the tensor and moves the scale.

constexpr const char* kOp = "GradScaler";

void check(const GradScalerOptions& o) {
  check_option(o.init_scale >= raw::kMinLossScale && std::isfinite(o.init_scale), kOp, "init_scale",
               "positive and finite", o.init_scale);
  check_option(o.growth_factor > 1 && std::isfinite(o.growth_factor), kOp, "growth_factor", "> 1",
               o.growth_factor);
  check_option(o.backoff_factor > 0 && o.backoff_factor < 1, kOp, "backoff_factor", "in (0, 1)",
               o.backoff_factor);
  check_option(o.growth_interval >= 1, kOp, "growth_interval", ">= 1", double(o.growth_interval));
}

raw::LossScaleOptions loss_scale_options(const GradScalerOptions& o) {
  return {o.growth_factor, o.backoff_factor, double(o.growth_interval)};
}

// Returns the scale of a LossScale on a device, f64[].
Tensor scale_in(const Tensor& on_device) { return raw::reshape(raw::narrow(on_device, 0, 0, 1), {}); }

// Returns x * factor; factor f64[]. Computed in f32 (f64 for f64 tensors) and rounded once, as raw::mul_ by a
// number.
Tensor times(const Tensor& x, const Tensor& factor) {
  const DType wide = raw::step_dtype(x.dtype());
  const Tensor wide_factor = raw::to(raw::to(factor, x.device()), wide);
  return raw::to(raw::mul(raw::to(x, wide), wide_factor), x.dtype());
}

// Changes the scale of a gradient from factor `from` to factor `to`, in place.
void rescale(const Tensor& grad, const internal::Factor& from, const internal::Factor& to) {
  if (!from.on_device.defined() && !to.on_device.defined())
    return raw::mul_(autograd::elements_of(grad), to.number / from.number);
  const auto on_device = [&](const internal::Factor& f) {
    const Tensor x = f.on_device.defined() ? scale_in(f.on_device) : tensor<double>({f.number}, {});
    return raw::to(x, grad.device());
  };
  raw::copy_(grad, times(grad, raw::div(on_device(to), on_device(from))));
}

}  // namespace

raw::LossScale GradScaler::ScaleState::read() const {
  if (!on_device.defined()) return on_host;
  const std::vector<double> n = on_device.to_vector<double>();
  return {n[0], n[1], n[2], n[3]};
}

bool GradScaler::FoundInf::read() const {
  return on_device.defined() ? on_device.item<float>() != 0 : on_host;
}

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)) {
  check(options_);
  current_.on_host.scale = options_.init_scale;
}

// Returns the GPU that can decide on steps of these parameters.
std::optional<Device> GradScaler::device_of(const std::vector<Tensor>& params) const {
  if (params.empty() || options_.agree) return std::nullopt;
  const Device device = params.front().device();
  const bool is_one = device.type == DeviceType::kCUDA &&
                      std::ranges::all_of(params, [&](const Tensor& p) { return p.device() == device; });
  return is_one ? std::optional(device) : std::nullopt;
}

// Makes the next scale the current one, on `device` or on the host (nullopt).
void GradScaler::move_scale_to(std::optional<Device> device) {
  if (next_ && next_memory_.defined() && next_->on_device.is_same(next_memory_) &&
      current_.on_device.defined())
    raw::copy_(current_.on_device, std::exchange(next_, std::nullopt)->on_device);
  else if (next_)
    current_ = *std::exchange(next_, std::nullopt);
  if (current_.on_device.defined() && current_.on_device.device() != device) current_ = {current_.read(), {}};
  if (device && !current_.on_device.defined()) {
    const raw::LossScale& n = current_.on_host;
    current_.on_device =
        raw::to(tensor<double>({n.scale, n.growth_tracker, n.skipped, n.found_inf}, {4}), *device);
  }
}

internal::Factor GradScaler::factor() const {
  if (current_.on_device.defined()) return {0, current_.on_device};
  return {current_.on_host.scale, {}};
}

// Records whether the gradients of params are only a part of a model's (backward_of_part), which step() must
// not clip.
void GradScaler::set_partial(const std::vector<Tensor>& params, bool partial) {
  for (const Tensor& p : params)
    if (partial)
      partial_params_.insert(p.ref().get());
    else
      partial_params_.erase(p.ref().get());
}

// Moves the scale to `device` (nullopt: the host), rescales gradients that were kept, and returns the state
// of the gradients, by which mark_scaled() finds those that the backward changed.
std::vector<GradScaler::GradientVersion> GradScaler::begin_backward(const std::vector<Tensor>& params,
                                                                    std::optional<Device> device) {
  if (Capture* capture = Context::current().capture.get())
    capture->valid_while([this, loads = loads_] { return loads == loads_; });
  move_scale_to(device);
  if (!current_.on_device.defined() && current_.on_host.scale < raw::kMinLossScale)
    raw::throw_invalid_scale(current_.on_host.scale, int64_t(current_.on_host.skipped));
  std::vector<GradientVersion> before;
  for (const Tensor& p : params) {
    GradientVersion& b = before.emplace_back();
    const Tensor grad = p.grad();
    if (!grad.defined()) continue;
    const internal::Factor* factor_of_grad = internal::factor_of(grad);
    if (factor_of_grad && internal::changed_since_marked(grad))
      throw StateError(kOp, "the gradient of ", describe(p), " was changed since the last backward");
    if (factor_of_grad && !(*factor_of_grad == factor())) {
      // The gradient was kept for a later step, and another optimizer's step changed the scale meanwhile.
      rescale(grad, *factor_of_grad, factor());
      internal::mark_scaled(grad, factor());
    }
    b = {grad.ref().get(), grad.storage()->version(), factor_of_grad != nullptr};
  }
  return before;
}

void GradScaler::mark_scaled(const std::vector<Tensor>& params,
                             const std::vector<GradientVersion>& before) const {
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor grad = params[i].grad();
    if (!grad.defined()) continue;
    const GradientVersion& b = before[i];
    const bool same = b.grad == grad.ref().get() && grad.storage()->version() == b.version;
    if (same && b.is_scaled == (internal::factor_of(grad) != nullptr))
      continue;  // this loss did not reach it
    // The version of a bucket does not tell which gradient in it changed.
    const bool is_whole = grad.nbytes() == grad.storage()->bytes() || !b.grad;
    if (b.grad && !b.is_scaled && is_whole)
      throw StateError(
          kOp, "backward has added to the gradient of ", describe(params[i]),
          ", which exists and is not scaled; call clear_grad() after a step, and scaler.backward for "
          "every loss");
    internal::mark_scaled(grad, factor());
  }
}

// Returns dy times the scale; an undefined dy is 1.
Tensor GradScaler::scaled_dy(const Tensor& loss, const Tensor& dy) const {
  if (!loss.defined()) throw StateError(kOp, "the loss is undefined (none)");
  if (!dy.defined()) check_one_element(kOp, "the loss", loss, " (or pass its dy)");
  if (current_.on_device.defined() && dy.defined()) return times(dy, scale_in(current_.on_device));
  const Tensor scaled = dy.defined() ? raw::clone(dy) : empty(loss.shape(), {loss.dtype(), loss.device()});
  if (current_.on_device.defined()) return raw::copy_(scaled, scale_in(current_.on_device)), scaled;
  if (!dy.defined()) raw::fill_(scaled, 1);
  raw::mul_(scaled, current_.on_host.scale);
  return scaled;
}

// Divides the gradients of opt's parameters by their factors. Returns whether this rank found an infinity or
// NaN.
GradScaler::FoundInf GradScaler::unscale(Optimizer& opt, const char* op) const {
  struct Group {
    Device device;
    internal::Factor factor;
    std::vector<Tensor> grads;
  };
  std::vector<Tensor> marked;
  std::vector<Group> groups;  // of gradients with one device and one factor; usually one group
  for (const Tensor& p : opt.parameters()) {
    Tensor g = p.grad();
    if (!g.defined()) continue;
    const internal::Factor* factor_of_grad = internal::factor_of(g);
    if (!factor_of_grad || internal::changed_since_marked(g))
      throw StateError(op, "the gradient of ", describe(p),
                       " does not come from scaler.backward, or was changed or divided since");
    if (g.dtype() == DType::kF16)
      throw DTypeError(op, "divides gradients in place, for which f16 has no room: ", describe(p),
                       "; keep parameters in f32, autocast casts them");
    const Tensor& elements = autograd::elements_of(g);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const Group& a) {
      return a.device == elements.device() && a.factor == *factor_of_grad;
    });
    if (it == groups.end()) it = groups.insert(it, {elements.device(), *factor_of_grad, {}});
    it->grads.push_back(elements);
    marked.push_back(std::move(g));
  }
  if (groups.empty())
    throw StateError(op, "none of the optimizer's ", opt.parameters().size(),
                     " parameters has a gradient: call scaler.backward before");
  std::vector<Tensor> found;
  for (const Group& a : groups)
    found.push_back(a.factor.on_device.defined()
                        ? raw::unscale_(a.grads, raw::to(scale_in(a.factor.on_device), a.device))
                        : raw::unscale_(a.grads, 1 / a.factor.number));
  for (const Tensor& g : marked) internal::remove_mark(g);
  if (current_.on_device.defined() &&
      std::ranges::all_of(groups, [&](const Group& a) { return a.device == current_.on_device.device(); })) {
    Tensor any = found.front();
    for (size_t i = 1; i < found.size(); ++i) any = raw::maximum(any, found[i]);
    return {false, any};
  }
  return {std::ranges::any_of(found, [](const Tensor& f) { return f.item<float>() != 0; }), {}};
}

// Computes the next scale after a step.
void GradScaler::update_scale(const FoundInf& found) {
  if (!current_.on_device.defined()) {
    raw::LossScale last = next_ ? next_->on_host : current_.on_host;
    if (!next_) last.found_inf = 0;
    next_ = {raw::next_loss_scale(current_.on_host, last, found.read(), loss_scale_options(options_)), {}};
    return;
  }
  const OpCall call(kOp);
  const Device device = current_.on_device.device();
  const Tensor found_there = raw::to(
      found.on_device.defined() ? found.on_device : tensor<float>({found.on_host ? 1.f : 0.f}, {}), device);
  Tensor next = raw::move_scale(current_.on_device, next_ ? next_->on_device : Tensor(), found_there,
                                loss_scale_options(options_));
  if (Context::current().capture && !next_memory_.defined()) next_memory_ = empty_like(next);
  if (next_memory_.defined() && next_memory_.device() == device)
    raw::copy_(next_memory_, std::exchange(next, next_memory_));
  next_ = {{}, next};
}

void GradScaler::unscale_(Optimizer& opt) {
  if (!options_.enabled) return;
  const char* op = "GradScaler::unscale_";
  if (std::any_of(unscaled_.begin(), unscaled_.end(), [&](const auto& u) { return u.first == &opt; }))
    throw StateError(op, "was called for this optimizer since its last step");
  FoundInf found = unscale(opt, op);
  if (options_.agree) found = {options_.agree(found.read()), {}};
  unscaled_.emplace_back(&opt, std::move(found));
}

StepOutcome GradScaler::step(Optimizer& opt, const ScaledStepOptions& o) {
  if (o.clip_norm) check_option(*o.clip_norm >= 0, kOp, "clip_norm", ">= 0", *o.clip_norm);
  if (o.clip_norm && std::ranges::any_of(opt.parameters(), [&](const Tensor& p) {
        return partial_params_.contains(p.ref().get());
      }))
    throw StateError(kOp,
                     "these gradients are a part of a model's, and clip_norm would look at their norm alone: "
                     "call unscale_, clip by the norm of all parts, then step");
  if (o.clip_value) check_option(*o.clip_value >= 0, kOp, "clip_value", ">= 0", *o.clip_value);
  check_option(o.norm_type > 0, kOp, "norm_type", "> 0", o.norm_type);
  Tensor found;  // on a device, which decides
  if (options_.enabled) {
    const auto of_opt = [&](const auto& u) { return u.first == &opt; };
    if (std::none_of(unscaled_.begin(), unscaled_.end(), of_opt)) unscale_(opt);
    const auto it = std::find_if(unscaled_.begin(), unscaled_.end(), of_opt);
    const FoundInf of_gradients = std::move(it->second);
    unscaled_.erase(it);
    update_scale(of_gradients);
    if (of_gradients.on_host) return false;
    found = of_gradients.on_device;
  }
  if (o.clip_norm) grad_norm_ = clip_grad_norm_(opt.parameters(), *o.clip_norm, {.norm_type = o.norm_type});
  if (o.clip_value) clip_grad_value_(opt.parameters(), *o.clip_value);
  if (!found.defined()) return opt.step(), true;
  opt.step_unless(found);
  return StepOutcome::skipped_if(found);
}

State GradScaler::state_dict() const {
  const raw::LossScale scale = next_scale();
  return {.tensors = {},
          .numbers = {{"scale", scale.scale},
                      {"growth_factor", options_.growth_factor},
                      {"backoff_factor", options_.backoff_factor},
                      {"growth_interval", double(options_.growth_interval)},
                      {"growth_tracker", scale.growth_tracker},
                      {"skipped_steps", scale.skipped}}};
}

void GradScaler::load_state_dict(const State& state) {
  StateReader in(state);
  GradScalerOptions options = options_;
  options.init_scale = in.number("scale");
  options.growth_factor = in.number("growth_factor");
  options.backoff_factor = in.number("backoff_factor");
  options.growth_interval = in.count("growth_interval");
  const int64_t growth_tracker = in.count("growth_tracker"), skipped = in.count("skipped_steps");
  in.finish("this GradScaler");
  check(options);
  current_ = {.on_host = {.scale = std::exchange(options.init_scale, options_.init_scale),
                          .growth_tracker = double(growth_tracker),
                          .skipped = double(skipped)},
              .on_device = {}};
  next_.reset();
  ++loads_;
  options_ = std::move(options);
  unscaled_.clear();
}

}  // namespace gradus::optim
