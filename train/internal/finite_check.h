// FiniteCheck: what a training does about logged values and gradients that are NaN or infinite.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gradus/nn/module.h"
#include "gradus/tensor/tensor.h"
#include "gradus/train/tally.h"

namespace gradus::training::internal {

class FiniteCheck {
 public:
  using Values = std::vector<std::pair<std::string, Tensor>>;  // what a step logs

  // For errors: `program`, and `checkpoint`, the latest one ("": none).
  FiniteCheck(std::string program, std::string checkpoint)
      : program_(std::move(program)), checkpoint_(std::move(checkpoint)) {}

  // Lets steps be skipped, fewer than 100 in a row: then the buffers of the modules are as before the step.
  void allow_skipping(std::vector<nn::Module*> modules) { modules_ = std::move(modules); }
  void begin_step(int64_t step);
  // Handles gradients of `network` that are not finite; `found` names them. Returns to skip the step.
  // Collective.
  // Errors: ValueError if steps may not be skipped, or too many in a row were.
  void skip_step(const std::string& network, const std::string& found, const Values& values, Tally& tally);
  // Returns the sums of the step's values. A value on a GPU is added to the tally later, by read_values.
  // Errors: ValueError for a value that is not finite, unless the step was skipped.
  Sums end_step(const Values& values, Tally& tally);
  // Adds the values of steps on a GPU to the tally. Waits for the GPU.
  // Errors: as end_step.
  void read_values(Tally& tally);

  int64_t& skipped() { return skipped_; }  // steps of networks

 private:
  struct Unread {
    int64_t step;
    std::string name;
    Tensor number;
    bool was_skipped;
  };
  void check(int64_t step, const std::string& name, double value);
  std::string kept_checkpoint() const;

  std::string program_, checkpoint_;
  std::vector<nn::Module*> modules_;  // empty: steps may not be skipped
  std::vector<Tensor> buffers_;       // copies from the beginning of the step
  std::vector<Unread> unread_;
  std::map<std::string, double> last_values_;  // of this rank
  int64_t step_ = 0, skipped_step_ = 0;        // the current one; the last one skipped
  int64_t skipped_ = 0, skipped_in_row_ = 0;
};

}  // namespace gradus::training::internal
