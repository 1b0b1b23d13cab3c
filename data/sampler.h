// Samplers: the order in which an epoch visits the samples. An order is a pure function of the epoch, so that
// any process can recompute it to resume in the middle of an epoch or to take its shard.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::data {

// The arguments of shard(): a rank's part of an order.
struct Share {
  int rank = 0, world_size = 1;
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Number of samples in an epoch, over all ranks.
  virtual int64_t size() const = 0;
  // Returns the indices that epoch `epoch` visits, in order, over all ranks. All ranks must compute the same
  // order.
  virtual std::vector<int64_t> order(uint64_t epoch) const = 0;
  // Returns the share for loaders whose options set none. nullopt: loaders use the job's rank and size.
  virtual std::optional<Share> share() const;
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

// A permutation that depends only on (size, seed, epoch): Fisher-Yates shuffle with Philox random numbers.
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

// Draws independently with replacement: P(index i) = weights[i] / sum of weights, as PyTorch's
// WeightedRandomSampler. For sets with imbalanced classes.
class ReplacementSampler : public Sampler {
 public:
  // An epoch has num_samples draws.
  // Errors: ValueError for a weight that is negative or not finite, for weights whose sum is not positive,
  // and for a negative num_samples.
  ReplacementSampler(const std::vector<double>& weights, int64_t num_samples, uint64_t seed);
  int64_t size() const override { return num_samples_; }
  std::vector<int64_t> order(uint64_t epoch) const override;

 private:
  std::vector<double> ends_;   // inclusive prefix sums of the weights
  int64_t last_positive_ = 0;  // the last index of positive weight
  int64_t num_samples_;
  uint64_t seed_;
};

struct DistributedSamplerOptions {
  int num_replicas = -1;  // -1: the job's number of replicas (Job::replica; by default each rank is one)
  int rank = -1;          // -1: the index of this rank's replica
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;  // drop samples that do not divide evenly; false: repeat the first samples
};

// PyTorch's DistributedSampler, for programs ported from PyTorch. A DataLoader does not need it: the loader
// shards by itself and advances epochs without set_epoch. Without shuffle, each rank gets the same samples as
// in PyTorch; with shuffle, the same number of samples in a different order, since the random generators
// differ.
class DistributedSampler : public Sampler {
 public:
  // A -1 freezes the job's replica (Job::freeze_replica).
  // Errors: ValueError for a negative size, and for a rank outside [0, num_replicas). StateError if rank or
  // num_replicas is -1 in a process that was started as a rank but has not joined a job.
  explicit DistributedSampler(int64_t size, const DistributedSamplerOptions& options = {});

  // Number of samples of all replicas together.
  int64_t size() const override;
  std::vector<int64_t> order(uint64_t epoch) const override;
  std::optional<Share> share() const override;

  int64_t num_samples() const { return size() / options_.num_replicas; }  // of this replica
  // Returns this replica's indices in the epoch set by set_epoch, or in epoch 0.
  std::vector<int64_t> indices() const;
  // Makes order() return the order of `epoch`, whatever its argument, until the next call of set_epoch.
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
  std::optional<uint64_t> epoch_;
};

// Returns elements rank, rank + world_size, ... of the order. The first k elements of all ranks' shards are
// together the first k * world_size elements. Sizes of shards differ by at most one.
// Errors: ValueError unless 0 <= rank < world_size.
std::vector<int64_t> shard(const std::vector<int64_t>& order, int rank, int world_size);

}  // namespace gradus::data
