// TrainingState: the state after a training step, and where two states differ. For verify.
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
  size_t at = 0;  // element
  double given = 0, expected = 0;
};

// A tensor that differs.
struct StateDifference {
  int step = 0;
  StateKind kind = StateKind::kLoss;
  size_t index = 0;
  std::string name;
  int rank = -1;  // differs from rank 0; -1: all ranks differ from the expected value
  Difference difference;
  bool one_element = false;

  auto place() const { return std::tuple(step, kind, index); }
};

struct Comparison {
  std::optional<StateDifference> first;
  double largest = 0;  // of all differences
  std::string buffer;  // the first buffer that differs between ranks
};

struct ComparisonOptions {
  double tolerance = 0;
  // Whether ranks had the same batch: then their losses must be equal too.
  bool same_batch = false;
};

// Compares the ranks' states after a step with each other. Also compares them with `expected`, unless that is
// null; there the loss is the mean of the ranks' losses. A difference is relative to the tensor's largest
// element, or to a thousandth of the largest element of its kind if that is more.
Comparison compare(const std::vector<TrainingState>& ranks, const TrainingState* expected, int step,
                   const ComparisonOptions& options);

}  // namespace gradus::dist::internal
