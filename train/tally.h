// Sums over samples, and Tally: sums over all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::training {

namespace internal {

// Numbers on a GPU are read late and many at once; at most this many stay unread.
inline constexpr size_t kMaxUnread = 1000;

bool is_on_gpu(const Tensor& x);
// Returns a copy in f64 of the one element of x, on its device.
Tensor copy_number(const Tensor& x);
// Returns the values of f64 scalars on one device. Waits for the device once.
std::vector<double> read_numbers(const std::vector<Tensor>& numbers);

}  // namespace internal

// Sums over samples, each under the name of its mean: the number of correct answers is "accuracy".
struct Sums {
  // A value on a GPU: number * factor.
  struct OnDevice {
    std::string name;
    Tensor number;
    double factor = 1;
  };

  int64_t seen = 0;
  std::vector<std::pair<std::string, double>> of = {};
  // The number of values in a sum, if it is not `seen`: of a loss that not every step has.
  std::vector<std::pair<std::string, int64_t>> seen_of = {};
  // Belong to the sums. Reading a sum waits for them.
  std::vector<OnDevice> on_device = {};

  // Adds sums of the same names, and appends those of new names.
  Sums& operator+=(const Sums& s);
  bool contains(std::string_view name) const;
  // Returns 0 for an unknown name.
  double sum(std::string_view name) const;
  // Returns sum(name) / seen, or / seen_of; 0 if that is 0.
  double mean(std::string_view name) const;
  std::map<std::string, double> means() const;  // of all names
  // Returns the same sums, with the values of on_device in `of`.
  Sums read() const;
  bool operator==(const Sums& s) const;
};

// Returns "loss 0.0312"; a name that begins with "accuracy" as a percentage: "accuracy 98.97 %".
std::string mean_text(const std::string& name, double mean);

// Each rank adds the sums of its own samples; reduce() adds up the ranks. The ranks of one replica
// (Job::replica: the stages of a pipeline) have the same samples, so that the first of them counts for all.
//
//   training::Tally tally;
//   for (const data::Batch& b : loader)
//     tally.add({.seen = b.size(), .of = {{"loss", total_loss}, {"accuracy", number_correct}}});
//   tally.reduce();
//   tally.total().mean("accuracy");  // over the samples of all ranks
class Tally {
 public:
  explicit Tally(Sums total = {}) : total_(std::move(total)) {}

  // Waits for a GPU once in many calls.
  void add(const Sums& s);
  // Returns the sums of all ranks since the last call, and adds them to the total. Collective.
  Sums reduce();
  const Sums& total() const { return total_; }  // of all ranks, at the last reduce()

 private:
  Sums total_, local_;
};

}  // namespace gradus::training
