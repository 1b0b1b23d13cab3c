// FiniteCheck: handles NaN and infinity in a training. Logged values that are not finite are an error;
// gradients that are not finite are an error, or skip the step of the network. Not thread-safe.
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
  using Values = std::vector<std::pair<std::string, Tensor>>;  // the logged values of a step, by name

  // `program` and `checkpoint`, the path of the latest checkpoint ("": none), are named in errors.
  FiniteCheck(std::string program, std::string checkpoint)
      : program_(std::move(program)), checkpoint_(std::move(checkpoint)) {}

  // Allows steps to be skipped, fewer than 100 in a row. A skipped step restores the buffers of the modules,
  // which must outlive this object, to those at begin_step().
  void allow_skipping(std::vector<nn::Module*> modules) { modules_ = std::move(modules); }
  void begin_step(int64_t step);
  // Handles gradients of `network` that are not finite; `cause` is the text that names their rank and
  // parameter, `values` are those logged so far. If it returns, the caller skips the optimizer's step.
  // Collective.
  // Errors: ValueError if steps may not be skipped, or too many in a row were.
  void skip_step(const std::string& network, const std::string& cause, const Values& values, Tally& tally);
  // Returns the sums of the step's values. A value on a GPU is added to the tally later, by read_values.
  // Errors: ValueError for a value that is not finite, unless the step was skipped.
  Sums end_step(const Values& values, Tally& tally);
  // Adds the values of steps on a GPU to the tally. Waits for the GPU.
  // Errors: as end_step.
  void read_values(Tally& tally);

  // Number of skipped steps, each network counted separately. A reference, for TrainingState.
  int64_t& skipped() { return skipped_; }

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
