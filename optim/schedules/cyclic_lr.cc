// CyclicLR and OneCycleLR, as torch.optim.lr_scheduler; an epoch is one call of step(). Both compute the rate
// from the epoch alone. CyclicLR: base_lr + (max_lr - base_lr) triangle(epoch) scale(). OneCycleLR: a list of
// phases, each of which anneals between two of the rates first, max and last. The momentum falls while the
// rate rises.
#include "gradus/optim/schedules/cyclic_lr.h"

#include <cmath>
#include <numbers>

namespace gradus::optim {
namespace {

void check_momentum(const char* op, const Optimizer& optimizer) {
  if (!optimizer.has_momentum())
    throw ValueError(op, "the optimizer has no momentum: expected cycle_momentum = false");
}

// Check the options, set the groups' initial learning rates before the base class reads them, and return
// `optimizer`.
Optimizer& configured(Optimizer& optimizer, const CyclicLROptions& o) {
  constexpr const char* kOp = "CyclicLR";
  check_option(o.step_size_up >= 1, kOp, "step_size_up", ">= 1", double(o.step_size_up));
  check_option(o.step_size_down >= 0, kOp, "step_size_down", ">= 0", double(o.step_size_down));
  const size_t groups = optimizer.num_groups();
  o.base_lr->check(kOp, "base_lr", groups);
  o.max_lr->check(kOp, "max_lr", groups);
  o.base_momentum.check(kOp, "base_momentum", groups);
  o.max_momentum.check(kOp, "max_momentum", groups);
  if (o.cycle_momentum) check_momentum(kOp, optimizer);
  for (size_t g = 0; g < groups; ++g) optimizer.set_lr(g, (*o.base_lr)[g]);
  return optimizer;
}

Optimizer& configured(Optimizer& optimizer, const OneCycleLROptions& o) {
  constexpr const char* kOp = "OneCycleLR";
  check_option(o.total_steps >= 0, kOp, "total_steps", ">= 1", double(o.total_steps));
  if (o.total_steps == 0 && (o.epochs < 1 || o.steps_per_epoch < 1))
    throw ValueError(kOp, "expected total_steps, or epochs and steps_per_epoch >= 1, got epochs ", o.epochs,
                     " and steps_per_epoch ", o.steps_per_epoch);
  check_option(o.pct_start >= 0 && o.pct_start <= 1, kOp, "pct_start", "in [0, 1]", o.pct_start);
  check_option(o.div_factor > 0, kOp, "div_factor", "> 0", o.div_factor);
  check_option(o.final_div_factor > 0, kOp, "final_div_factor", "> 0", o.final_div_factor);
  const size_t groups = optimizer.num_groups();
  o.max_lr->check(kOp, "max_lr", groups);
  o.base_momentum.check(kOp, "base_momentum", groups);
  o.max_momentum.check(kOp, "max_momentum", groups);
  if (o.cycle_momentum) check_momentum(kOp, optimizer);
  for (size_t g = 0; g < groups; ++g) optimizer.set_initial_lr(g, (*o.max_lr)[g] / o.div_factor);
  return optimizer;
}

}  // namespace

CyclicLR::CyclicLR(Optimizer& optimizer, CyclicLROptions options)
    : LRSchedule(configured(optimizer, options), "CyclicLR"), options_(std::move(options)) {
  start();
}

// Returns the position in the triangular wave: 0 for base_lr, 1 for max_lr.
double CyclicLR::triangle_wave() const {
  const CyclicLROptions& o = options_;
  const double epoch = double(last_epoch()), up = double(o.step_size_up),
               total = up + (o.step_size_down ? double(o.step_size_down) : up), ratio = up / total,
               cycle = std::floor(1 + epoch / total), x = 1.0 + epoch / total - cycle;
  return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
}

// Returns the factor of triangle_wave() in this cycle or epoch, from the mode or scale_fn.
double CyclicLR::scale() const {
  const CyclicLROptions& o = options_;
  const double epoch = double(last_epoch()), up = double(o.step_size_up),
               total = up + (o.step_size_down ? double(o.step_size_down) : up),
               cycle = std::floor(1 + epoch / total);
  if (o.scale_fn) return o.scale_fn(o.scale_mode == CyclicScale::kCycle ? cycle : epoch);
  if (o.mode == CyclicMode::kTriangular2) return 1 / std::pow(2.0, cycle - 1);
  return o.mode == CyclicMode::kExpRange ? std::pow(o.gamma, epoch) : 1;
}

double CyclicLR::rate(size_t group, double, double) const {
  const double low = (*options_.base_lr)[group], high = (*options_.max_lr)[group];
  return low + (high - low) * triangle_wave() * scale();
}

std::optional<double> CyclicLR::momentum(size_t group) const {
  if (!options_.cycle_momentum) return {};
  const double low = options_.base_momentum[group], high = options_.max_momentum[group];
  return high - (high - low) * triangle_wave() * scale();
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, OneCycleLROptions options)
    : LRSchedule(configured(optimizer, options), "OneCycleLR"), options_(std::move(options)) {
  OneCycleLROptions& o = options_;
  if (o.total_steps == 0) o.total_steps = o.epochs * o.steps_per_epoch;
  const double total = double(o.total_steps),
               max_epoch = o.pct_start * total - 1;  // epoch of the maximum rate
  if (o.three_phase)
    phases_ = {{max_epoch, Level::kFirst, Level::kMax},
               {2 * o.pct_start * total - 2, Level::kMax, Level::kFirst},
               {total - 1, Level::kFirst, Level::kLast}};
  else
    phases_ = {{max_epoch, Level::kFirst, Level::kMax}, {total - 1, Level::kMax, Level::kLast}};
  start();
}

double OneCycleLR::level(size_t group, Level level) const {
  const double max = (*options_.max_lr)[group], first = max / options_.div_factor;
  return level == Level::kMax ? max : level == Level::kFirst ? first : first / options_.final_div_factor;
}

void OneCycleLR::check_step() const {
  if (last_epoch() + 1 > options_.total_steps)
    throw ValueError("OneCycleLR", "step ", last_epoch() + 1, " after the last of ", options_.total_steps);
}

std::pair<const OneCycleLR::Phase*, double> OneCycleLR::current_phase() const {
  const double epoch = double(last_epoch());
  double begin = 0;
  for (const Phase& phase : phases_) {
    // Epochs after the last phase keep the last rate; PyTorch extrapolates, even to negative rates. A phase
    // may have length 0 if there are few steps.
    if (epoch <= phase.end || &phase == &phases_.back())
      return {&phase, epoch > phase.end || phase.end <= begin ? 1.0 : (epoch - begin) / (phase.end - begin)};
    begin = phase.end;
  }
  throw InternalError("OneCycleLR: no phase");
}

double OneCycleLR::anneal(double from, double to, double fraction) const {
  if (options_.anneal_strategy == Anneal::kLinear) return (to - from) * fraction + from;
  return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * fraction) + 1);
}

double OneCycleLR::rate(size_t group, double, double) const {
  const auto [phase, fraction] = current_phase();
  return anneal(level(group, phase->from), level(group, phase->to), fraction);
}

std::optional<double> OneCycleLR::momentum(size_t group) const {
  if (!options_.cycle_momentum) return {};
  const auto [phase, fraction] = current_phase();
  const auto at = [&](Level l) {
    return l == Level::kMax ? options_.base_momentum[group] : options_.max_momentum[group];
  };
  return anneal(at(phase->from), at(phase->to), fraction);
}

}  // namespace gradus::optim
