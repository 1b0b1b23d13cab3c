// AutoMicroBatches: the number of micro-batches, chosen by measuring.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/internal/recompute_choice.h"

namespace gradus::dist::internal {

// Note [Automatic micro-batches]
// Small micro-batches make kernels inefficient, large ones make ranks wait. Candidates are the divisors of
// the batch. In the first training step each rank measures its stages at a few sizes, all ranks at once. For
// other sizes the times lie on lines between. A simulation of the schedule predicts each candidate's time.
// The best ones are then run, by turns, in the training's own steps. All ranks take the same decision.
class AutoMicroBatches {
 public:
  struct Setting {
    // Returns the lists for so many micro-batches.
    std::function<ActionLists(int micro_batches)> lists;
    // Returns the times of all stages with so many rows in a micro-batch. Collective.
    std::function<std::vector<StageTimes>(int64_t rows)> measure;
    std::vector<double> rank_bytes;         // what a rank holds besides micro-batches
    double memory_limit = 0;                // bytes per rank; 0: none
    std::vector<Recompute> recompute = {};  // of each stage
  };
  // Measures. `rows` is the batch's, the same on all ranks. Collective.
  // Errors: ValueError if no candidate keeps the memory limit.
  AutoMicroBatches(int64_t rows, const Setting& setting);

  // Returns the number for the next step.
  int number_for(int64_t rows) const;
  // Takes notice of how long a training step took. Collective at the step that ends the trials.
  void ran(int64_t rows, double seconds, const std::function<double(double)>& largest);
  // Returns whether the choice is made.
  bool done() const { return tried_ == trials_; }
  // Returns "8 micro-batches of 4 rows (predicted 0.120 s, idle 0.111; ran in 0.123 s), chosen among ...".
  std::string describe() const;
  // What the stages of the next step do, and of the steps to come as far as is known.
  const RecomputeChoice& next() const { return candidates_[tried()].choice; }
  const RecomputeChoice& best() const { return candidates_[0].choice; }

 private:
  struct Candidate {
    int number = 1;
    RecomputeChoice choice;
    double ran = -1;  // seconds for a batch of rows_; -1: not tried
  };
  size_t tried() const { return done() ? 0 : size_t(tried_ % best_few_); }

  int64_t rows_;
  std::vector<Candidate> candidates_;  // the best first
  int trials_ = 0, tried_ = 0;         // steps
  int best_few_ = 1;                   // candidates that are tried
};

}  // namespace gradus::dist::internal
