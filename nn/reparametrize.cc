// Reparametrizations (spectral norm, weight norm, equalized learning rate): forward pre-hooks recompute a
// layer's weight member from other parameters before each call, differentiably. Each function unregisters the
// parameter, registers the new ones, and hooks in. The hooks keep a reference to the layer's member, so the
// layer must not move.
#include "gradus/nn/reparametrize.h"

#include <cmath>
#include <memory>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/tracking.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::nn {
namespace {

// Registers hooks that assign compute(layer) to `member` before each call. `compute` owns the parameters that
// it reads, which therefore live as long as the layer.
template <class F> void compute_before_calls(Layer& layer, Tensor& member, F compute) {
  layer.register_forward_pre_hook([&member, compute](Layer& l, const Tensor&) { member = compute(l); });
  // Detaches `member` after the call, which would otherwise keep the call's graph alive.
  layer.register_forward_hook([&member](Layer&, const Tensor&, const Tensor&) { member = detach(member); });
}

// Unregisters the layer's parameter, and returns a reference to the member and its current tensor.
// Errors: ValueError naming `op` if there is no such parameter.
std::pair<Tensor&, Tensor> take_parameter(const char* op, Layer& layer, const std::string& name) {
  try {
    Tensor& member = layer.unregister_parameter(name);
    return {member, member};
  } catch (const ValueError&) {
    throw ValueError(op, layer.type_name(), " has no parameter '", name, "'");
  }
}

// Returns whether dim 0 of the layer's weight is the input channels, as in transposed convolutions.
bool is_transposed(const Layer& layer) {
  const std::string type = layer.type_name();
  return type.starts_with("ConvTranspose") || type == "UpConv2d";
}

// Returns x / max(|x|, eps).
Tensor normalized(const Tensor& x, double eps) { return x / maximum(norm(x), eps); }

// weight_orig: the parameter. u [rows] and v [columns]: estimates of the left and right singular vectors of
// the largest singular value of matrix().
struct SpectralState {
  Tensor weight_orig, u, v;

  // Returns weight_orig as a matrix with one row per output; `dim` is the weight's output dim.
  Tensor matrix(int dim) const {
    const Tensor w = movedim(weight_orig, dim, 0);
    return reshape(w, {w.size(0), w.numel() / std::max<int64_t>(w.size(0), 1)});
  }

  // Power iterations: v = W^T u / |W^T u|, u = W v / |W v|. Written to the buffers in place.
  void iterate(int dim, const SpectralNormOptions& o) {
    const NoRecord off = no_record();
    const autograd::NoAutocast in_dtype_of_weight;  // power iterations run in the weight's dtype
    const Tensor w = matrix(dim);
    Tensor next_u = u, next_v;
    for (int64_t i = 0; i < o.n_power_iterations; ++i) {
      next_v = normalized(matmul(next_u, w), o.eps);
      next_u = normalized(matmul(w, next_v), o.eps);
    }
    raw::copy_(u, next_u);
    raw::copy_(v, next_v);
  }

  // Returns weight_orig / sigma with sigma = u^T W v; u and v are constants for the gradient.
  Tensor compute(int dim) const {
    const autograd::NoAutocast in_dtype_of_weight;
    // Clones u and v, because later iterations overwrite them before the backward reads them.
    const Tensor sigma = sum(detach(raw::clone(u)) * matmul(matrix(dim), detach(raw::clone(v))));
    return weight_orig / sigma;
  }
};

}  // namespace

void apply_spectral_norm(Layer& layer, const SpectralNormOptions& o) {
  if (o.n_power_iterations < 1)
    throw ValueError("spectral_norm", "expected n_power_iterations >= 1, got ", o.n_power_iterations);
  const auto [member, weight] = take_parameter("spectral_norm", layer, o.name);
  const int dim = wrap_dim(o.dim.value_or(is_transposed(layer) ? 1 : 0), weight.dim(), "spectral_norm");
  const auto state = std::make_shared<SpectralState>();
  state->weight_orig = weight;
  const auto random_direction = [&](int64_t n) {
    return normalized(init::normal_(empty({n}, {weight.dtype(), weight.device()})), o.eps);
  };
  const NoRecord off = no_record();
  state->u = random_direction(weight.size(dim));
  state->v = random_direction(weight.numel() / std::max<int64_t>(weight.size(dim), 1));
  layer.register_parameter(o.name + "_orig", state->weight_orig);
  layer.register_buffer(o.name + "_u", state->u);
  layer.register_buffer(o.name + "_v", state->v);
  member = detach(state->compute(dim));
  compute_before_calls(layer, member, [state, dim, o](Layer& l) {
    // The second run of a checkpoint needs the weight of the first run, so u and v must not change.
    if (l.is_training() && !autograd::is_recomputing()) state->iterate(dim, o);
    return state->compute(dim);
  });
}

void apply_weight_norm(Layer& layer, const WeightNormOptions& o) {
  const auto [member, weight] = take_parameter("weight_norm", layer, o.name);
  Dims others;  // dims over which a norm is computed; empty: all dims, unless `each` below
  if (o.dim) {
    const int kept = wrap_dim(*o.dim, weight.dim(), "weight_norm");
    for (int d = 0; d < weight.dim(); ++d)
      if (d != kept) others.push_back(d);
  }
  // Norms over all dims but o.dim. For a vector these are no dims, for which norm() would reduce all dims.
  const auto norms = [others, each = o.dim && others.empty(), some = o.dim.has_value()](const Tensor& v) {
    return each ? abs(v) : norm(v, others, 2, some);
  };
  struct State {
    Tensor g, v;
  };
  const auto state = std::make_shared<State>();
  const NoRecord off = no_record();
  state->v = weight;
  state->g = raw::clone(norms(weight));
  layer.register_parameter(o.name + "_g", state->g);
  layer.register_parameter(o.name + "_v", state->v);
  member = raw::clone(weight);
  compute_before_calls(layer, member,
                       [state, norms](Layer&) { return state->v * (state->g / norms(state->v)); });
}

// Registers `value` as a parameter of this name, and computes member = value * scale before each call.
static void compute_scaled(Layer& layer, Tensor& member, const Tensor& value, const std::string& name,
                           double scale) {
  const auto state = std::make_shared<Tensor>(value);
  layer.register_parameter(name, *state);
  member = detach(value * scale);
  compute_before_calls(layer, member, [state, scale](Layer&) { return *state * scale; });
}

void apply_equalized_lr(Layer& layer, const EqualizedLROptions& o) {
  if (!(o.lr_mul > 0)) throw ValueError("equalized_lr", "expected lr_mul > 0, got ", o.lr_mul);
  const auto [member, weight] = take_parameter("equalized_lr", layer, o.name);
  const init::Fans fans = init::fans(weight);
  // For a transposed convolution's weight [in,out,...], fans.in counts output channels, as in PyTorch.
  const int64_t fan = (o.mode == init::FanMode::kFanIn) != is_transposed(layer) ? fans.in : fans.out;
  init::normal_(weight, {.stddev = 1 / o.lr_mul});
  const double scale = fan > 0 ? o.gain * o.lr_mul / std::sqrt(double(fan)) : 0;
  compute_scaled(layer, member, weight, o.name + "_orig", scale);
  for (const auto& [name, p] : layer.named_parameters()) {
    if (name != "bias") continue;
    const double lr_mul = o.scale_bias ? o.lr_mul : 1;
    init::constant_(p, o.bias / lr_mul);
    if (lr_mul == 1) break;
    const auto [bias_member, bias] = take_parameter("equalized_lr", layer, "bias");
    compute_scaled(layer, bias_member, bias, "bias", lr_mul);
    break;
  }
}

}  // namespace gradus::nn
