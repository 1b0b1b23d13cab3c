// TrainingState: loss, gradients, parameters and buffers after a training step, and their comparison between
// ranks. For verify.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gradus/nn/module.h"

namespace gradus::dist::internal {

// The kinds of tensors, in the order in which they are compared.
enum class StateKind { kLoss, kGradient, kParameter, kBuffer };
// Returns "gradient of ", "parameter ", ...
const char* prefix(StateKind kind);

// The names and tensors of each kind. Tensors share the model's memory.
struct TrainingState {
  std::array<nn::StateDict, 4> tensors;

  TrainingState() = default;
  TrainingState(const nn::Module& model, double loss);
  const nn::StateDict& operator[](StateKind kind) const { return tensors[static_cast<int>(kind)]; }
  double loss() const;
  TrainingState clone() const;
};

// The largest difference between elements of two tensors.
struct Difference {
  double relative = 0;
  size_t at = 0;  // row-major index of the element
  double actual = 0, expected = 0;
};

// A tensor that differs.
struct StateDifference {
  int step = 0;
  StateKind kind = StateKind::kLoss;
  size_t index = 0;
  std::string name;
  int rank = -1;  // the rank that differs from rank 0; -1: all ranks differ from the expected value
  Difference difference;
  bool one_element = false;  // the tensor has one element

  auto position() const { return std::tuple(step, kind, index); }
};

struct Comparison {
  std::optional<StateDifference> first;
  double largest = 0;  // the largest relative difference
  std::string buffer;  // name of the first buffer that differs between ranks
};

struct ComparisonOptions {
  double tolerance = 0;
  // All ranks had the same batch, so their losses are compared as well.
  bool same_batch = false;
};

// Compares the ranks' states after a step with rank 0's. If `expected` is not null, also compares rank 0's
// state, with the mean of the ranks' losses, with `expected`. Differences are relative:
// |x - y| / max(max |tensor|, 1e-3 max |all tensors of this kind|).
Comparison compare(const std::vector<TrainingState>& ranks, const TrainingState* expected, int step,
                   const ComparisonOptions& options);

}  // namespace gradus::dist::internal
