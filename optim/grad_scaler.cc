#include "gradus/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/optim/clip_grad.h"
#include "gradus/optim/scaled_gradient.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/optim_step.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::optim {
namespace {

constexpr const char* kOp = "GradScaler";
// A smaller scale has no reciprocal in f32.
constexpr double kSmallestScale = 0x1p-126;

void check(const GradScalerOptions& o) {
  check_option(o.init_scale >= kSmallestScale && std::isfinite(o.init_scale), kOp, "init_scale",
               "positive and finite", o.init_scale);
  check_option(o.growth_factor > 1 && std::isfinite(o.growth_factor), kOp, "growth_factor", "> 1",
               o.growth_factor);
  check_option(o.backoff_factor > 0 && o.backoff_factor < 1, kOp, "backoff_factor", "in (0, 1)",
               o.backoff_factor);
  check_option(o.growth_interval >= 1, kOp, "growth_interval", ">= 1", double(o.growth_interval));
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions options) : options_(std::move(options)) {
  check(options_);
  progress_.scale = options_.init_scale;
}

GradScaler::Progress GradScaler::settled() const {
  if (!stepped_) return progress_;
  if (found_) return {progress_.scale * options_.backoff_factor, 0};
  if (progress_.clean + 1 < options_.growth_interval) return {progress_.scale, progress_.clean + 1};
  const double larger = progress_.scale * options_.growth_factor;
  return {larger <= std::numeric_limits<float>::max() ? larger : progress_.scale, 0};
}

void GradScaler::note_parts(const std::vector<Tensor>& params, bool are_parts) {
  for (const Tensor& p : params)
    if (are_parts)
      parts_.insert(p.ref().get());
    else
      parts_.erase(p.ref().get());
}

std::vector<GradScaler::Before> GradScaler::begin_backward(const std::vector<Tensor>& params) {
  progress_ = settled();
  stepped_ = found_ = false;
  if (progress_.scale < kSmallestScale)
    throw StateError(kOp, "gradients are infinite or NaN whatever the scale, which has fallen to ",
                     progress_.scale, " after ", skipped_steps_,
                     " skipped steps: look for the NaN without it");
  std::vector<Before> before;
  for (const Tensor& p : params) {
    Before& b = before.emplace_back();
    const Tensor grad = p.grad();
    if (!grad.defined()) continue;
    const double scale = internal::scale_of(grad);
    if (scale != 0 && internal::changed_since_marked(grad))
      throw StateError(kOp, "the gradient of ", describe(p), " was changed since the last backward");
    if (scale != 0 && scale != progress_.scale) {
      // The gradient was kept for a later step, and another optimizer's step changed the scale meanwhile.
      raw::mul_(grad, progress_.scale / scale);
      internal::mark_scaled(grad, progress_.scale);
    }
    b = {grad.ref().get(), grad.storage()->version(), scale != 0};
  }
  return before;
}

void GradScaler::mark(const std::vector<Tensor>& params, const std::vector<Before>& before) const {
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor grad = params[i].grad();
    if (!grad.defined()) continue;
    const Before& b = before[i];
    const bool same = b.grad == grad.ref().get() && grad.storage()->version() == b.version;
    if (same && b.is_scaled == (internal::scale_of(grad) != 0)) continue;  // this loss did not reach it
    // The version of a bucket does not tell which gradient in it changed.
    const bool is_whole = grad.nbytes() == grad.storage()->bytes() || !b.grad;
    if (b.grad && !b.is_scaled && is_whole)
      throw StateError(
          kOp, "backward has added to the gradient of ", describe(params[i]),
          ", which was there and not scaled; call clear_grad() after a step, and scaler.backward for "
          "every loss");
    internal::mark_scaled(grad, progress_.scale);
  }
}

Tensor GradScaler::scaled_dy(const Tensor& loss, const Tensor& dy) const {
  if (!loss.defined()) throw StateError(kOp, "the loss is undefined (none)");
  if (!dy.defined()) check_one_element(kOp, "the loss", loss, " (or pass its dy)");
  const Tensor scaled = dy.defined() ? raw::clone(dy) : empty(loss.shape(), {loss.dtype(), loss.device()});
  if (!dy.defined()) raw::fill_(scaled, 1);
  raw::mul_(scaled, progress_.scale);
  return scaled;
}

// Returns whether this rank found an infinity.
bool GradScaler::divide(Optimizer& opt, const char* op) const {
  struct Alike {
    Device device;
    double scale;
    std::vector<Tensor> grads;
  };
  std::vector<Alike> all;  // one element, except for models on several devices and unusual orders of calls
  for (const Tensor& p : opt.parameters()) {
    Tensor g = p.grad();
    if (!g.defined()) continue;
    const double scale = internal::scale_of(g);
    if (scale == 0 || internal::changed_since_marked(g))
      throw StateError(op, "the gradient of ", describe(p),
                       " does not come from scaler.backward, or was changed or divided since");
    if (g.dtype() == DType::kF16)
      throw DTypeError(op, "divides gradients in place, for which f16 has no room: ", describe(p),
                       "; keep parameters in f32, autocast casts them");
    auto it = std::find_if(all.begin(), all.end(),
                           [&](const Alike& a) { return a.device == g.device() && a.scale == scale; });
    if (it == all.end()) it = all.insert(it, {g.device(), scale, {}});
    it->grads.push_back(std::move(g));
  }
  if (all.empty())
    throw StateError(op, "none of the optimizer's ", opt.parameters().size(),
                     " parameters has a gradient: call scaler.backward before");
  std::vector<Tensor> found;
  for (const Alike& a : all) found.push_back(raw::unscale_(a.grads, 1 / a.scale));
  for (const Alike& a : all)
    for (const Tensor& g : a.grads) internal::mark_scaled(g, 0);
  return std::any_of(found.begin(), found.end(), [](const Tensor& f) { return f.item<float>() != 0; });
}

void GradScaler::unscale_(Optimizer& opt) {
  if (!options_.enabled) return;
  const char* op = "GradScaler::unscale_";
  if (std::any_of(unscaled_.begin(), unscaled_.end(), [&](const auto& u) { return u.first == &opt; }))
    throw StateError(op, "was called for this optimizer since its last step");
  const bool here = divide(opt, op);
  unscaled_.emplace_back(&opt, options_.agree ? options_.agree(here) : here);
}

bool GradScaler::step(Optimizer& opt, const ScaledStepOptions& o) {
  if (o.clip_norm) check_option(*o.clip_norm >= 0, kOp, "clip_norm", ">= 0", *o.clip_norm);
  if (o.clip_norm &&
      std::ranges::any_of(opt.parameters(), [&](const Tensor& p) { return parts_.contains(p.ref().get()); }))
    throw StateError(kOp,
                     "these gradients are a part of a model's, and clip_norm would look at their norm alone: "
                     "call unscale_, clip by the norm of all parts, then step");
  if (o.clip_value) check_option(*o.clip_value >= 0, kOp, "clip_value", ">= 0", *o.clip_value);
  check_option(o.norm_type > 0, kOp, "norm_type", "> 0", o.norm_type);
  if (options_.enabled) {
    const auto of_opt = [&](const auto& u) { return u.first == &opt; };
    if (std::none_of(unscaled_.begin(), unscaled_.end(), of_opt)) unscale_(opt);
    const auto it = std::find_if(unscaled_.begin(), unscaled_.end(), of_opt);
    const bool found = it->second;
    unscaled_.erase(it);
    stepped_ = true;
    found_ = found_ || found;
    if (found) return ++skipped_steps_, false;
  }
  if (o.clip_norm) grad_norm_ = clip_grad_norm_(opt.parameters(), *o.clip_norm, {.norm_type = o.norm_type});
  if (o.clip_value) clip_grad_value_(opt.parameters(), *o.clip_value);
  opt.step();
  return true;
}

State GradScaler::state_dict() const {
  const Progress now = settled();
  return {.tensors = {},
          .numbers = {{"scale", now.scale},
                      {"growth_factor", options_.growth_factor},
                      {"backoff_factor", options_.backoff_factor},
                      {"growth_interval", double(options_.growth_interval)},
                      {"growth_tracker", double(now.clean)},
                      {"skipped_steps", double(skipped_steps_)}}};
}

void GradScaler::load_state_dict(const State& state) {
  StateReader in(state);
  GradScalerOptions options = options_;
  options.init_scale = in.number("scale");
  options.growth_factor = in.number("growth_factor");
  options.backoff_factor = in.number("backoff_factor");
  options.growth_interval = in.count("growth_interval");
  const int64_t clean = in.count("growth_tracker"), skipped = in.count("skipped_steps");
  in.finish("this GradScaler");
  check(options);
  progress_ = {std::exchange(options.init_scale, options_.init_scale), clean};
  options_ = std::move(options);
  stepped_ = found_ = false;
  unscaled_.clear();
  skipped_steps_ = skipped;
}

}  // namespace gradus::optim
