// What tools/train-faults.sh does for each program, and the table that it prints.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradus/tests/distributed/data_parallel/train_faults_kills.h"

namespace gradus::dist {

struct FaultsOptions {
  std::string executable, data;  // of the training; "": images that are drawn
  int repetitions = 50;
  uint64_t seed = 1;
};

// What happened to some jobs.
struct Figures {
  int kills = 0, restarts = 0;
  std::map<std::string, int> places;  // the kills, by what they fell into
  std::vector<double> seconds;        // of each job
};

// A line for each kind of job, with the kills that fell into each of these places.
class Table {
 public:
  // A repetition: returns what was wrong; none when it is not one of this kind.
  using Repetition = std::function<std::optional<std::vector<std::string>>(int, Random, Figures&)>;

  explicit Table(std::vector<std::string> places);
  void repeat(const std::string& name, const FaultsOptions& options, const Repetition& once);
  // Prints the sums of all lines so far.
  void print_sums() const;
  // Counts it as wrong when no kill fell into one of the places.
  void expect_all_places();
  // Prints whether all is right. Returns a status.
  int end() const;

 private:
  void print(const std::string& name, int runs, int wrong, const Figures& f) const;

  const std::vector<std::string> places_;
  Figures all_;
  int runs_ = 0, wrong_ = 0;  // jobs
};

// Return a status.
int run_mnist_faults(const FaultsOptions& options);
int run_gan_faults(const FaultsOptions& options);

}  // namespace gradus::dist
