// ReduceLROnPlateau.
#include "gradus/optim/schedules/plateau.h"

#include <algorithm>
#include <limits>

namespace gradus::optim {
namespace {
constexpr const char* kOp = "ReduceLROnPlateau";
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer),
      options_(std::move(options)),
      best_(options_.mode == MetricMode::kMin ? std::numeric_limits<double>::infinity()
                                              : -std::numeric_limits<double>::infinity()) {
  check_option(options_.factor > 0 && options_.factor < 1, kOp, "factor", "in (0, 1)", options_.factor);
  check_option(options_.patience >= 0, kOp, "patience", ">= 0", double(options_.patience));
  check_option(options_.threshold >= 0, kOp, "threshold", ">= 0", options_.threshold);
  check_option(options_.cooldown >= 0, kOp, "cooldown", ">= 0", double(options_.cooldown));
  check_option(options_.eps >= 0, kOp, "eps", ">= 0", options_.eps);
  options_.min_lr.check(kOp, "min_lr", optimizer.num_groups());
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const double threshold = options_.threshold;
  const bool relative = options_.threshold_mode == ThresholdMode::kRel;
  if (options_.mode == MetricMode::kMin)
    return metric < (relative ? best_ * (1.0 - threshold) : best_ - threshold);
  return metric > (relative ? best_ * (threshold + 1.0) : best_ + threshold);
}

void ReduceLROnPlateau::step(double metric) {
  ++epoch_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= options_.patience) return;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    const double old = optimizer_.lr(g), lower = std::max(old * options_.factor, options_.min_lr[g]);
    if (old - lower > options_.eps) optimizer_.set_lr(g, lower);
  }
  cooldown_left_ = options_.cooldown;
  bad_epochs_ = 0;
}

std::vector<double> ReduceLROnPlateau::last_lr() const {
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

State ReduceLROnPlateau::state_dict() const {
  State state;
  state.numbers = {{"last_epoch", double(epoch_)},
                   {"best", best_},
                   {"num_bad_epochs", double(bad_epochs_)},
                   {"cooldown_counter", double(cooldown_left_)}};
  for (size_t g = 0; g < optimizer_.num_groups(); ++g)
    state.numbers.emplace_back(concat("last_lr.", g), optimizer_.lr(g));
  return state;
}

void ReduceLROnPlateau::load_state_dict(const State& state) {
  StateReader in(state);
  const int64_t epoch = in.count("last_epoch"), bad = in.count("num_bad_epochs"),
                cooldown = in.count("cooldown_counter");
  const double best = in.number("best");
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(in.rate(concat("last_lr.", g)));
  in.finish(kOp);
  epoch_ = epoch, best_ = best, bad_epochs_ = bad, cooldown_left_ = cooldown;
  for (size_t g = 0; g < rates.size(); ++g) optimizer_.set_lr(g, rates[g]);
}

}  // namespace gradus::optim
