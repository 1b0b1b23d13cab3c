// Sums: sums of metrics over samples, by name. Tally: accumulates Sums on each rank, and adds up those of all
// ranks for means over all samples. Values on a GPU stay there until they are read, many in one transfer.
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

// Maximum number of values on a GPU that stay unread.
inline constexpr size_t kMaxUnread = 1000;

bool is_on_gpu(const Tensor& x);
// Returns a copy in f64 of the one element of x, on its device.
Tensor to_f64_scalar(const Tensor& x);
// Returns the values of f64 scalars on one device. Waits for the device once.
std::vector<double> read_scalars(const std::vector<Tensor>& numbers);

}  // namespace internal

// Sums over samples, each under the name of its mean: the sum "accuracy" is the number of correct answers.
struct Sums {
  // A summand on a GPU: number * factor, where `number` is an f64 scalar.
  struct OnDevice {
    std::string name;
    Tensor number;
    double factor = 1;
  };

  int64_t seen = 0;                                     // number of samples
  std::vector<std::pair<std::string, double>> of = {};  // the sums, by name
  // By name: the number of summands of a sum, if it differs from `seen` (a loss that not every step has).
  std::vector<std::pair<std::string, int64_t>> counts = {};
  // Further summands of the sums, by name; they have one device. Reading a sum waits for the device.
  std::vector<OnDevice> on_device = {};

  // Adds sums of the same names, and appends those of new names.
  Sums& operator+=(const Sums& s);
  bool contains(std::string_view name) const;
  // Returns 0 for an unknown name.
  double sum(std::string_view name) const;
  // Returns sum(name) divided by counts[name] if present, else by seen; 0 if the divisor is 0.
  double mean(std::string_view name) const;
  std::map<std::string, double> means() const;  // of all names
  // Returns the same sums on the host: on_device is added to `of`. Waits for the device.
  Sums read() const;
  bool operator==(const Sums& s) const;
};

// Returns "loss 0.0312"; a name that begins with "accuracy" as a percentage: "accuracy 98.97 %".
std::string mean_text(const std::string& name, double mean);

// Each rank adds the sums of its own samples; reduce() adds up the ranks. The ranks of one replica
// (Job::replica: the stages of a pipeline) have the same samples, so only the first one's sums count.
//
//   training::Tally tally;
//   for (const data::Batch& b : loader)
//     tally.add({.seen = b.size(), .of = {{"loss", total_loss}, {"accuracy", number_correct}}});
//   tally.reduce();
//   tally.total().mean("accuracy");  // over the samples of all ranks
class Tally {
 public:
  explicit Tally(Sums total = {});

  // Adds sums of this rank. Waits for a GPU once in kMaxUnread values.
  void add(const Sums& s);
  // Returns the sums of all ranks since the last call, and adds them to the total. Collective.
  Sums reduce();
  const Sums& total() const { return total_; }  // of all ranks, at the last reduce()

 private:
  Sums total_, local_;
};

}  // namespace gradus::training
