// ParameterNumbers: translates an optimizer's state between this rank's parameters and the undivided model's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/staged_model.h"
#include "gradus/optim/optimizer.h"

namespace gradus::dist::internal {

// Note [Numbers of parameters]
// An optimizer's state has numbers instead of names: "state.3.exp_avg" is of parameter 3, counted over all
// groups. A program of one rank gives it the model's parameters in their order, in each group. So the
// undivided state has the numbers of that order, whichever order a rank's optimizer has.
class ParameterNumbers {
 public:
  // Asks all ranks of the job which parameters their optimizers have. Collective.
  // Errors, on all ranks: ValueError if an optimizer has a parameter that its rank's part of the model does
  // not have, and if the groups differ between ranks.
  ParameterNumbers(StagedModel& model, const optim::Optimizer& opt);

  // Returns this rank's part of the undivided state.
  // Errors: ValueError for a state that belongs to no parameter (LBFGS).
  optim::State undivided(const optim::State& own) const;
  // Returns what this rank's optimizer loads, and what no rank's does. The former's tensors are read(name).
  // Errors: ValueError if the groups have other numbers of parameters.
  optim::State own(const optim::State& undivided,
                   const std::function<Tensor(const std::string& name)>& read) const;

 private:
  std::vector<size_t> undivided_;  // of this rank's numbers
  std::map<size_t, size_t> own_;   // the reverse
  std::vector<size_t> sizes_;      // of the groups, in the undivided optimizer
  std::vector<size_t> own_sizes_;  // on this rank
  size_t parameters_ = 0;          // of all groups
};

}  // namespace gradus::dist::internal
