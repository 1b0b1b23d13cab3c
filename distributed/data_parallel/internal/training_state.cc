// Implementation of TrainingState and compare.
#include "gradus/distributed/data_parallel/internal/training_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/copy.h"

namespace gradus::dist::internal {
namespace {

std::vector<double> values(const Tensor& x) {
  return x.defined() ? x.to_vector<double>() : std::vector<double>();
}

double largest_of(const nn::StateDict& tensors) {
  double largest = 0;
  for (const auto& [name, x] : tensors)
    if (x.defined() && is_floating(x.dtype()))
      for (double v : values(x)) largest = std::max(largest, std::abs(v));
  return largest;
}

// Returns max |actual - expected| / max(floor, max |actual|, max |expected|). Missing elements count as zeros.
Difference difference_of(const Tensor& actual, const Tensor& expected, double floor) {
  std::vector<double> a = values(actual), b = values(expected);
  a.resize(std::max(a.size(), b.size()));
  b.resize(a.size());
  Difference result;
  double scale = floor, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    scale = std::max({scale, std::abs(a[i]), std::abs(b[i])});
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    double difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) difference = std::numeric_limits<double>::infinity();
    if (difference > largest) largest = difference, result = {0, i, a[i], b[i]};
  }
  if (largest > 0) result.relative = std::isinf(largest) ? largest : largest / scale;
  return result;
}

}  // namespace

const char* prefix(StateKind kind) {
  constexpr std::array<const char*, 4> kPrefixes = {"", "gradient of ", "parameter ", "buffer "};
  return kPrefixes[static_cast<int>(kind)];
}

TrainingState::TrainingState(const nn::Module& model, double loss)
    : tensors{nn::StateDict{{"loss", scalar(loss, {.dtype = DType::kF64})}},
              {},
              model.named_parameters(),
              model.named_buffers()} {
  for (const auto& [name, parameter] : tensors[2]) tensors[1].emplace_back(name, parameter.grad());
}

double TrainingState::loss() const { return tensors[0].at(0).second.item<double>(); }

TrainingState TrainingState::clone() const {
  TrainingState copy = *this;
  for (nn::StateDict& dict : copy.tensors)
    for (auto& [name, x] : dict)
      if (x.defined()) x = raw::clone(x);
  return copy;
}

Comparison compare(const std::vector<TrainingState>& ranks, const TrainingState* expected, int step,
                   const ComparisonOptions& options) {
  Comparison result;
  for (StateKind kind : {StateKind::kLoss, StateKind::kGradient, StateKind::kParameter, StateKind::kBuffer}) {
    const nn::StateDict& first = ranks[0][kind];
    const double floor = 1e-3 * largest_of(first);
    for (size_t i = 0; i < first.size(); ++i) {
      const auto& [name, value] = first[i];
      const auto compare_tensors = [&, &name = name](const Tensor& actual, const Tensor& other, int rank) {
        const Difference difference = difference_of(actual, other, floor);
        result.largest = std::max(result.largest, difference.relative);
        if (difference.relative <= options.tolerance) return;
        if (kind == StateKind::kBuffer && rank >= 0 && result.buffer.empty()) result.buffer = name;
        const bool one_element = actual.defined() && actual.numel() == 1;
        if (!result.first) result.first = {step, kind, i, name, rank, difference, one_element};
      };
      const bool is_loss = kind == StateKind::kLoss;
      if (!is_loss || options.same_batch)
        for (size_t rank = 1; rank < ranks.size(); ++rank)
          compare_tensors(ranks[rank][kind].at(i).second, value, static_cast<int>(rank));
      if (!expected) continue;
      double sum = 0;
      for (const TrainingState& state : ranks) sum += state.loss();
      compare_tensors(is_loss ? scalar(sum / double(ranks.size()), {.dtype = DType::kF64}) : value,
                      (*expected)[kind].at(i).second, -1);
    }
  }
  return result;
}

}  // namespace gradus::dist::internal
