// Samplers: in which order an epoch visits the samples. An order is a pure function of the epoch, so that any
// process can compute it again: to resume in the middle of an epoch, or to take its share of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::data {

// Which of the positions of an order are a rank's: see shard().
struct Share {
  int rank = 0, world_size = 1;
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Samples in an epoch, over all ranks.
  virtual int64_t size() const = 0;
  // Returns the indices that epoch `epoch` visits, in order, over all ranks. Must give all ranks the same.
  virtual std::vector<int64_t> order(uint64_t epoch) const = 0;
  // The share that a loader with this sampler gives, unless its options say; by default the job decides.
  virtual std::optional<Share> share() const { return {}; }
};

// 0, 1, ..., size - 1, every epoch.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(int64_t size);  // Errors: ValueError for a negative size
  int64_t size() const override { return size_; }
  std::vector<int64_t> order(uint64_t epoch) const override;

 private:
  int64_t size_;
};

// A permutation that depends on (size, seed, epoch) alone: Fisher-Yates with Philox numbers.
class RandomSampler : public Sampler {
 public:
  RandomSampler(int64_t size, uint64_t seed);  // Errors: ValueError for a negative size
  int64_t size() const override { return size_; }
  uint64_t seed() const { return seed_; }
  std::vector<int64_t> order(uint64_t epoch) const override;

 private:
  int64_t size_;
  uint64_t seed_;
};

// Draws with replacement: every draw gives index i with probability weights[i] / sum of weights,
// independently of the others. For sets whose classes differ in size.
class ReplacementSampler : public Sampler {
 public:
  // An epoch has num_samples draws.
  // Errors: ValueError for a weight that is negative or not finite, for weights whose sum is not positive,
  // and for a negative num_samples.
  ReplacementSampler(const std::vector<double>& weights, int64_t num_samples, uint64_t seed);
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> order(uint64_t epoch) const override;

 private:
  std::vector<double> ends_;  // sums of the weights up to and with each
  int64_t last_ = 0;          // the last index of positive weight
  int64_t num_samples_;
  uint64_t seed_;
};

struct DistributedSamplerOptions {
  int num_replicas = -1;  // -1: the job's ranks
  int rank = -1;          // -1: this one
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;  // leave out what cannot be shared out equally; else the first samples come again
};

// PyTorch's sampler of that name, for programs that come from there: a DataLoader shards by itself, so it
// needs none, and advances its epochs, so set_epoch is not needed either. Given to a loader, each rank gets
// what it gets there; shuffled, as many samples in another order, for PyTorch's random numbers are its own.
class DistributedSampler : public Sampler {
 public:
  // Errors: ValueError for a negative size, and for a rank outside of [0, num_replicas); StateError for the
  // job's in a process that is started as a rank and has joined no job.
  explicit DistributedSampler(int64_t size, const DistributedSamplerOptions& options = {});

  // Samples of all replicas together, the same for each.
  int64_t size() const override;
  std::vector<int64_t> order(uint64_t epoch) const override;
  std::optional<Share> share() const override { return Share{options_.rank, options_.num_replicas}; }

  int64_t num_samples() const { return size() / options_.num_replicas; }  // of this replica
  // This replica's indices in the epoch of the last set_epoch, or 0.
  std::vector<int64_t> indices() const;
  // From now on every order is that of `epoch`, also a loader's, until set_epoch is called again.
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
  std::optional<uint64_t> epoch_;
};

// Returns rank's share of an order: positions rank, rank + world_size, ... The first k shares of all
// ranks together are the first k * world_size samples, whatever the number of ranks; shares differ by one
// sample at most.
std::vector<int64_t> shard(const std::vector<int64_t>& order, int rank, int world_size);

}  // namespace gradus::data
