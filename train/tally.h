// Tally: what a pass over the data adds up to, over all ranks.
//
//   training::Tally tally;
//   for (const data::Batch& b : loader)
//     tally.add({.seen = b.size(), .of = {{"loss", total_loss}, {"accuracy", number_correct}}});
//   tally.reduce();
//   tally.total().mean("accuracy");  // over the samples of all ranks
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/tensor/tensor.h"

namespace gradus::training {

// Sums over samples, each under the name of its mean: the number of correct answers is "accuracy".
struct Sums {
  // What a device has computed, or will: a number that counts so many times.
  struct OnDevice {
    std::string name;
    Tensor number;
    double times = 1;
  };

  int64_t seen = 0;
  std::vector<std::pair<std::string, double>> of = {};
  // How many values a sum is of, where it is not `seen`: of a loss that not every step has.
  std::vector<std::pair<std::string, int64_t>> seen_of = {};
  // Belongs to the sums, and nobody has waited for it. Whoever asks for a sum waits.
  std::vector<OnDevice> on_device = {};

  // Adds sums of the same names. Names that are new here are added behind the others.
  Sums& operator+=(const Sums& s);
  bool contains(std::string_view name) const;
  // Returns 0 for a name that is not there.
  double sum(std::string_view name) const;
  // Returns sum(name) / seen, or over seen_of; 0 when nothing was seen.
  double mean(std::string_view name) const;
  std::map<std::string, double> means() const;  // of all names
  // Returns the same with nothing left on a device.
  Sums read() const;
  bool operator==(const Sums& s) const;
};

// "loss 0.0312"; "accuracy 98.97 %": what is named accuracy is shown as a percentage.
std::string mean_text(const std::string& name, double mean);

// Each rank adds what it has seen itself. Now and then all ranks call reduce(). Ranks that work for one
// replica (Job::replica: the stages of a pipeline) have seen the same samples: of them the first one counts.
class Tally {
 public:
  explicit Tally(Sums total = {}) : total_(std::move(total)) {}

  // Waits for a device once in many steps.
  void add(const Sums& s);
  // Adds to the total what all ranks have seen since the last time, and returns that. Collective.
  Sums reduce();
  // Returns the total over all ranks, as of the last reduce(): the same on all of them.
  const Sums& total() const { return total_; }

 private:
  Sums total_, mine_;
};

// Counts the rows of the logits [N,classes] that have the target i64[N] among their k largest values. Of
// equal values the first counts as the larger. A row whose target is NaN, or that has another NaN, is wrong
// for k = 1. Counts the first `rows` rows; -1: all.
int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k = 1, int64_t rows = -1);

// Returns a classifier's sums over a batch: "loss", "accuracy", and "accuracy_in_5" if it is asked for.
// Samples that are there a second time (Batch::padding) do not count. It does not wait for a GPU: what that
// computes stays there until a sum is read.
// Shapes: loss [] (the batch's mean) or [N] (one of each sample), logits [N,classes].
struct ScoreOptions {
  bool in_5 = false;  // whether the target is among the five largest logits
};
Sums score(const Tensor& loss, const Tensor& logits, const data::Batch& batch, ScoreOptions options = {});

}  // namespace gradus::training
