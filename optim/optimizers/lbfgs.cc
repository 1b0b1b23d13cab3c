// L-BFGS: two-loop recursion for the direction d = -H g (H approximates the inverse Hessian), and a line
// search for the strong Wolfe conditions with cubic interpolation. Follows minFunc and torch.optim.LBFGS.
// Gradients and directions are vectors of all parameters' elements, in f32 or f64 on the parameters' device;
// losses and dot products are read by the host, which waits for the device.
#include "gradus/optim/optimizers/lbfgs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "gradus/autograd/graph/sparse_gradient.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::optim {

template class OptimizerWith<LBFGSOptions>;

namespace {

double dot(const Tensor& a, const Tensor& b) { return raw::sum(raw::mul(a, b)).item<double>(); }
double max_abs(const Tensor& x) { return raw::amax(raw::unary<functors::Abs>(x)).item<double>(); }

// A point x0 + t d of a line search along direction d, with the loss and the gradient there.
struct Point {
  double t, loss;
  Tensor gradient;
  double derivative;  // directional derivative of the loss along d
};

// Returns the t at which the cubic through two points with their derivatives has its minimum, clamped to
// [low, high]; the midpoint if the cubic has no minimum.
double cubic_minimum(const Point& a, const Point& b, double low, double high) {
  const double d1 = a.derivative + b.derivative - 3 * (a.loss - b.loss) / (a.t - b.t);
  const double square = d1 * d1 - a.derivative * b.derivative;
  if (!(square >= 0)) return (low + high) / 2;
  const Point &left = a.t <= b.t ? a : b, &right = a.t <= b.t ? b : a;
  const double d2 = std::sqrt(square);
  const double at = right.t - (right.t - left.t) * ((right.derivative + d2 - d1) /
                                                    (right.derivative - left.derivative + 2 * d2));
  return std::min(std::max(at, low), high);
}

// Returns a point that satisfies the strong Wolfe conditions, with f(t) the loss at x0 + t d:
//   f(t) <= f(0) + c1 t f'(0)  and  |f'(t)| <= c2 |f'(0)|.
// The search begins at t, brackets such a point, and then narrows the bracket (Nocedal and Wright, algorithms
// 3.5 and 3.6). `start` is the point t = 0, and evaluate(t) returns a Point. `length` is max |d_i|. Returns
// the best point so far after `max_evaluations` evaluations beyond the first, or when the bracket moves no
// parameter by `tolerance`.
template <class Evaluate>
Point strong_wolfe(const Point& start, double t, double length, double tolerance, int64_t max_evaluations,
                   Evaluate evaluate) {
  constexpr double c1 = 1e-4, c2 = 0.9;
  const auto violates_decrease = [&](const Point& p) {
    return p.loss > start.loss + c1 * p.t * start.derivative;
  };
  const auto satisfies_curvature = [&](const Point& p) {
    return std::abs(p.derivative) <= -c2 * start.derivative;
  };
  int64_t evaluations = 0;
  Point previous = start, current = evaluate(t);
  std::array<Point, 2> bracket;
  for (;; ++evaluations) {
    if (evaluations >= max_evaluations) {
      bracket = {start, current};
      break;
    }
    const bool overshoots = violates_decrease(current) || (evaluations > 1 && current.loss >= previous.loss);
    if (!overshoots && satisfies_curvature(current)) return current;
    if (overshoots || current.derivative >= 0) {
      bracket = {previous, current};
      break;
    }
    t = cubic_minimum(previous, current, current.t + 0.01 * (current.t - previous.t), current.t * 10);
    previous = current, current = evaluate(t);
  }
  const auto lower = [&] { return bracket[0].loss <= bracket[1].loss ? 0 : 1; };
  int low = lower();
  bool near_edge = false;
  for (; evaluations < max_evaluations; ++evaluations) {
    const double left = std::min(bracket[0].t, bracket[1].t), right = std::max(bracket[0].t, bracket[1].t);
    if ((right - left) * length < tolerance) break;
    t = cubic_minimum(bracket[0], bracket[1], left, right);
    // Insufficient progress: two consecutive points near an edge of the bracket, or one on it. Moves t away
    // from the edge.
    const double margin = 0.1 * (right - left);
    const bool near = std::min(right - t, t - left) < margin;
    const bool stuck = near && (near_edge || t >= right || t <= left);
    if (stuck) t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
    near_edge = near && !stuck;
    const Point trial = evaluate(t);
    if (violates_decrease(trial) || trial.loss >= bracket[low].loss) {
      bracket[1 - low] = trial;
      low = lower();
      continue;
    }
    if (satisfies_curvature(trial)) return trial;
    if (trial.derivative * (bracket[1 - low].t - bracket[low].t) >= 0) bracket[1 - low] = bracket[low];
    bracket[low] = trial;
  }
  return bracket[low];
}

// Returns copies of the parameters, which restore() writes back.
std::vector<Tensor> copies(const std::vector<Tensor>& params) {
  std::vector<Tensor> all;
  for (const Tensor& p : params) all.push_back(raw::clone(p));
  return all;
}
void restore(const std::vector<Tensor>& params, const std::vector<Tensor>& values) {
  for (size_t i = 0; i < params.size(); ++i) raw::copy_(params[i], values[i]);
}

}  // namespace

void LBFGSOptions::check() const {
  const auto count = [](int64_t n, int64_t least) { return n >= least && n < (int64_t(1) << 53); };
  check_option(lr >= 0, "LBFGS", "lr", ">= 0", lr);
  check_option(count(max_iter, 1), "LBFGS", "max_iter", "in [1, 2^53)", double(max_iter));
  check_option(count(max_eval, 0), "LBFGS", "max_eval", "in [0, 2^53)", double(max_eval));
  check_option(tolerance_grad >= 0, "LBFGS", "tolerance_grad", ">= 0", tolerance_grad);
  check_option(tolerance_change >= 0, "LBFGS", "tolerance_change", ">= 0", tolerance_change);
  check_option(count(history_size, 1), "LBFGS", "history_size", "in [1, 2^53)", double(history_size));
  check_option(line_search_fn == LineSearch::kNone || line_search_fn == LineSearch::kStrongWolfe, "LBFGS",
               "line_search_fn", "kNone (0) or kStrongWolfe (1)", double(line_search_fn));
}

LBFGS::LBFGS(const std::vector<Tensor>& params, LBFGSOptions options) {
  add_param_group(params, options);
  for (const Tensor& p : params) {
    if (size_of(p.dtype()) < 4) throw DTypeError(kind(), "expected f32 or f64 parameters, got ", describe(p));
    if (p.device() != params[0].device())
      throw DeviceError(kind(), "parameters are on different devices: ", describe(params[0]), " and ",
                        describe(p));
    dtype_ = promote(dtype_, p.dtype());
    numel_ += p.numel();
  }
}

Tensor LBFGS::flat_gradient() const {
  std::vector<Tensor> lines;
  for (const Tensor& p : parameters(0)) {
    const Tensor grad = p.grad();
    check_step(p, grad);
    const Tensor line = grad.defined() ? autograd::to_dense(grad) : zeros_like(p);
    lines.push_back(raw::reshape(raw::to(line, dtype_), {p.numel()}));
  }
  const Tensor all = raw::cat(lines, 0);
  return options().maximize ? raw::unary<functors::Neg>(all) : all;
}

void LBFGS::add_to_parameters(const Tensor& direction, double t) const {
  int64_t first = 0;
  for (const Tensor& p : parameters(0)) {
    raw::add_(p, raw::reshape(raw::narrow(direction, 0, first, p.numel()), p.shape()), t);
    first += p.numel();
  }
}

LBFGS::CurvaturePair LBFGS::curvature_pair(Tensor y, Tensor s) {
  const double ys = dot(y, s);
  return {std::move(y), std::move(s), ys};
}

Tensor LBFGS::search_direction(const IterationState& state, const Tensor& gradient) {
  Tensor d = raw::unary<functors::Neg>(gradient);
  if (state.pairs.empty()) return d;
  // Algorithm 7.4 of Nocedal and Wright: from the newest pair to the oldest, then back.
  std::vector<double> factors(state.pairs.size());
  for (size_t i = state.pairs.size(); i-- > 0;) {
    const CurvaturePair& pair = state.pairs[i];
    factors[i] = dot(pair.s, d) / pair.ys;
    raw::add_(d, pair.y, -factors[i]);
  }
  const CurvaturePair& last = state.pairs.back();
  raw::mul_(d, last.ys / dot(last.y, last.y));
  for (size_t i = 0; i < state.pairs.size(); ++i) {
    const CurvaturePair& pair = state.pairs[i];
    raw::add_(d, pair.s, factors[i] - dot(pair.y, d) / pair.ys);
  }
  return d;
}

Tensor LBFGS::step(const std::function<Tensor()>& closure) {
  if (!closure) throw ValueError(kind(), "step needs a closure that evaluates the loss and its gradients");
  if (num_groups() != 1) throw ValueError(kind(), "has one group of parameters, got ", num_groups());
  const std::vector<Tensor>& params = parameters(0);
  const std::vector<Tensor> before = copies(params);
  const IterationState saved_state = state_;
  Tensor first_loss;
  try {
    iterate(closure, first_loss);
  } catch (...) {
    restore(params, before);
    state_ = saved_state;
    throw;
  }
  return first_loss;
}

void LBFGS::iterate(const std::function<Tensor()>& closure, Tensor& first_loss) {
  const LBFGSOptions o = options();
  const std::vector<Tensor>& params = parameters(0);
  const int64_t max_eval = o.max_eval ? o.max_eval : o.max_iter + o.max_iter / 4;
  int64_t evaluations = 0;
  // Returns the loss at the current parameters; the closure sets their gradients.
  const auto evaluate = [&] {
    const Tensor loss = closure();
    check_one_element(kind(), "the loss", loss);
    if (!first_loss.defined()) first_loss = loss;
    ++evaluations, ++state_.evaluations;
    return o.maximize ? -loss.item<double>() : loss.item<double>();
  };
  double loss = evaluate();
  if (numel_ == 0) return;
  Tensor gradient = flat_gradient();
  if (max_abs(gradient) <= o.tolerance_grad) return;
  for (int64_t iteration = 1;; ++iteration) {
    if (state_.iterations > 0) {
      CurvaturePair change =
          curvature_pair(raw::sub(gradient, state_.gradient), raw::mul(state_.direction, state_.t));
      if (change.ys > 1e-10) {  // keeps H positive definite
        state_.pairs.push_back(std::move(change));
        while (int64_t(state_.pairs.size()) > o.history_size) state_.pairs.pop_front();
      }
    }
    const bool first = state_.iterations++ == 0;
    state_.direction = search_direction(state_, gradient);
    state_.gradient = gradient;
    state_.t =
        first ? std::min(1.0, 1 / raw::sum(raw::unary<functors::Abs>(gradient)).item<double>()) * o.lr : o.lr;
    const Tensor d = state_.direction;
    const double loss_before = loss, derivative = dot(gradient, d);
    if (derivative > -o.tolerance_change) break;
    if (o.line_search_fn == LineSearch::kStrongWolfe) {
      const std::vector<Tensor> start = copies(params);
      const Point found = strong_wolfe({0, loss, gradient, derivative}, state_.t, max_abs(d),
                                       o.tolerance_change, max_eval - evaluations, [&](double t) {
                                         add_to_parameters(d, t);
                                         const double loss_at_t = evaluate();
                                         Tensor g = flat_gradient();
                                         restore(params, start);
                                         const double derivative_at_t = dot(g, d);
                                         return Point{t, loss_at_t, std::move(g), derivative_at_t};
                                       });
      loss = found.loss, gradient = found.gradient, state_.t = found.t;
      add_to_parameters(d, state_.t);
    } else {
      add_to_parameters(d, state_.t);
      if (iteration == o.max_iter) break;  // the next call of step() begins with an evaluation here
      loss = evaluate();
      gradient = flat_gradient();
    }
    if (iteration == o.max_iter || evaluations >= max_eval) break;
    if (max_abs(gradient) <= o.tolerance_grad) break;
    if (max_abs(raw::mul(d, state_.t)) <= o.tolerance_change) break;
    if (std::abs(loss - loss_before) < o.tolerance_change) break;
  }
}

void LBFGS::step_group(size_t, const std::vector<raw::StepItem>&) {
  throw StateError(kind(), "needs a closure: opt.step([&] { ...; return loss; })");
}

// Names of the state are those of torch.optim.LBFGS: old_dirs are the y, old_stps the s.
State LBFGS::state_dict() const {
  State state = OptimizerWith::state_dict();
  if (state_.iterations == 0 && state_.evaluations == 0) return state;
  state.numbers.emplace_back("lbfgs.n_iter", double(state_.iterations));
  state.numbers.emplace_back("lbfgs.func_evals", double(state_.evaluations));
  state.numbers.emplace_back("lbfgs.history", double(state_.pairs.size()));
  state.numbers.emplace_back("lbfgs.t", state_.t);
  if (state_.iterations == 0) return state;
  state.tensors.emplace_back("lbfgs.d", state_.direction);
  state.tensors.emplace_back("lbfgs.prev_flat_grad", state_.gradient);
  for (size_t i = 0; i < state_.pairs.size(); ++i) {
    state.tensors.emplace_back(concat("lbfgs.old_dirs.", i), state_.pairs[i].y);
    state.tensors.emplace_back(concat("lbfgs.old_stps.", i), state_.pairs[i].s);
  }
  return state;
}

void LBFGS::read_state(StateReader in) {
  OptimizerWith::read_state(in);
  StateReader own = in.with_prefix("lbfgs");
  const auto vector = [&](const std::string& name) {
    return own.tensor(name, {numel_}, {dtype_, parameters(0)[0].device()});
  };
  IterationState state;
  if (!own.empty()) {
    state.iterations = own.count("n_iter"), state.evaluations = own.count("func_evals");
    state.t = own.number("t");
    const int64_t pairs = own.count("history");
    if (state.iterations > 0) state.direction = vector("d"), state.gradient = vector("prev_flat_grad");
    for (int64_t i = 0; i < pairs; ++i) {
      const bool exists = own.contains(concat("old_dirs.", i));
      Tensor y = vector(concat("old_dirs.", i)), s = vector(concat("old_stps.", i));
      if (!exists) break;  // reports the first missing pair alone: a corrupt number of pairs can be huge
      if (y.defined() && s.defined()) state.pairs.push_back(curvature_pair(std::move(y), std::move(s)));
    }
  }
  in.on_success([this, state] { state_ = state; });
}

}  // namespace gradus::optim
