// ParameterNumbers: converts optimizer state between this rank's parameter indices and the undivided model's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/staged_model.h"
#include "gradus/optim/optimizer.h"

namespace gradus::dist::internal {

// Note [Numbers of parameters]
// Optimizer state identifies parameters by index: "state.3.exp_avg" belongs to parameter 3, counted over all
// parameter groups. The undivided state uses the indices of an optimizer in a one-rank program, whose groups
// list parameters in the model's order. A rank's optimizer may have any order.
class ParameterNumbers {
 public:
  // Exchanges the names of the optimizers' parameters between all ranks of the job. Collective.
  // Errors, on all ranks: ValueError if an optimizer has a parameter that is not of its rank's stages, or if
  // the parameter groups differ between ranks.
  ParameterNumbers(StagedModel& model, const optim::Optimizer& opt);

  // Converts this rank's state to undivided indices.
  // Errors: ValueError for an entry that belongs to no parameter (LBFGS).
  optim::State undivided(const optim::State& own) const;
  // Converts an undivided state to this rank's indices. Entries of other ranks' parameters are dropped;
  // unknown entries are kept unchanged. read(name) returns a tensor's data.
  // Errors: ValueError if the sizes of parameter groups differ.
  optim::State own(const optim::State& undivided,
                   const std::function<Tensor(const std::string& name)>& read) const;

 private:
  std::vector<size_t> undivided_;  // undivided index of each of this rank's indices
  std::map<size_t, size_t> own_;   // inverse of undivided_
  std::vector<size_t> sizes_;      // sizes of the undivided parameter groups
  std::vector<size_t> own_sizes_;  // sizes of this rank's parameter groups
  size_t parameters_ = 0;          // number of parameters in all undivided groups
};

}  // namespace gradus::dist::internal
