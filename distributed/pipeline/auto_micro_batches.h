// AutoMicroBatches: chooses a pipeline's number of micro-batches (equal parts of a batch that go through the
// stages one after the other), and the stages whose activations are recomputed, from measured times.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/distributed/pipeline/recompute.h"

namespace gradus::dist::internal {

// Note [Automatic micro-batches]
// Small micro-batches make kernels inefficient; large ones increase the pipeline's idle time. Candidates are
// the divisors of the batch's number of rows. Before the first training step all ranks measure their stages
// concurrently at a few micro-batch sizes. Times at other sizes are interpolated linearly. simulate()
// predicts each candidate's time. The best candidates are then used in turn by the next training steps, and
// the fastest one is chosen. All ranks make the same choice.
class AutoMicroBatches {
 public:
  struct Options {
    // Returns the schedule (the ordered actions of each rank) for this number of micro-batches.
    std::function<ActionLists(int micro_batches)> make_lists;
    // Returns the times of all stages for a micro-batch of `rows` rows. Collective.
    std::function<std::vector<StageTimes>(int64_t rows)> measure;
    int micro_batches = 0;           // > 0: the number is fixed, and only the recomputation is chosen
    std::vector<double> rank_bytes;  // per rank: bytes that do not depend on micro-batches (parameters)
    double memory_limit = 0;         // bytes per rank; 0: no limit
    Recompute recompute = Recompute::kNever;
  };
  // Measures the stages. `rows` >= 1 is the number of rows of the batch, equal on all ranks. Collective. The
  // functions in `options` are not called afterward.
  // Errors: ValueError if every candidate exceeds the memory limit.
  AutoMicroBatches(int64_t rows, const Options& options);

  // Returns the number of micro-batches for the next step, scaled to a batch of `rows` rows.
  int micro_batches_for(int64_t rows) const;
  // Records the duration of a training step with `rows` rows; ignored after the trials. `max_over_ranks`
  // returns the maximum of its argument over all ranks (collective); only the last trial step calls it.
  void record_time(int64_t rows, double seconds, const std::function<double(double)>& max_over_ranks);
  // Returns whether the trials have ended and the choice is final.
  bool done() const { return trial_steps_done_ == num_trial_steps_; }
  // Returns a line per candidate, best first: "8 micro-batches of 4 rows: predicted 1 s, idle 0.1; ..."
  std::string describe() const;
  // current_choice() is the recomputation of the next step; best_choice() that of the candidate with the best
  // prediction or, once the trials have ended, the shortest step.
  const RecomputeChoice& current_choice() const { return candidates_[current()].choice; }
  const RecomputeChoice& best_choice() const { return candidates_[0].choice; }

 private:
  struct Candidate {
    int micro_batches = 1;
    RecomputeChoice choice;
    double seconds = -1;  // measured time for a batch of rows_ rows; -1: not measured
  };
  // Returns the index of the candidate of the next step.
  size_t current() const { return done() ? 0 : size_t(trial_steps_done_ % num_trial_candidates_); }

  int64_t rows_;
  std::vector<Candidate> candidates_;  // by ascending predicted time; measured ones by measured time
  int num_trial_steps_ = 0, trial_steps_done_ = 0;  // numbers of planned and of completed trial steps
  int num_trial_candidates_ = 1;                    // number of candidates that get trial steps
};

}  // namespace gradus::dist::internal
