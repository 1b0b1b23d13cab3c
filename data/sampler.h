// Samplers: the order in which an epoch visits the samples. An order is a pure function of the epoch. So any
// process can compute it again, to resume in the middle of an epoch or to take its share of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gradus::data {

// A rank's share of an order, as shard() takes it.
struct Share {
  int rank = 0, world_size = 1;
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Samples in an epoch, over all ranks.
  virtual int64_t size() const = 0;
  // Returns the indices that epoch `epoch` visits, in order, over all ranks. All ranks must get
  // the same order.
  virtual std::vector<int64_t> order(uint64_t epoch) const = 0;
  // Returns the share that a loader with this sampler takes when the loader's options give none. Without a
  // value, the loader takes the job's share.
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
  std::vector<double> ends_;  // sums of the weights up to and including each
  int64_t last_ = 0;          // the last index of positive weight
  int64_t num_samples_;
  uint64_t seed_;
};

struct DistributedSamplerOptions {
  int num_replicas = -1;  // -1: the job's replicas
  int rank = -1;          // -1: this one
  bool shuffle = true;
  uint64_t seed = 0;
  bool drop_last = false;  // leave out the uneven rest; else repeat the first samples
};

// PyTorch's DistributedSampler, for programs that come from PyTorch. A DataLoader does not need it: the
// loader shards by itself, and it advances its epochs without set_epoch. With this sampler, each rank of a
// loader gets the same samples as in PyTorch. With shuffle it gets the same number of samples in another
// order, because Gradus has other random numbers.
class DistributedSampler : public Sampler {
 public:
  // Errors: ValueError for a negative size, and for a rank outside [0, num_replicas). StateError when rank or
  // num_replicas is -1 in a process that was started as a rank and has joined no job.
  explicit DistributedSampler(int64_t size, const DistributedSamplerOptions& options = {});

  // The number of samples of all replicas together. It is the same for each replica.
  int64_t size() const override;
  std::vector<int64_t> order(uint64_t epoch) const override;
  std::optional<Share> share() const override { return Share{options_.rank, options_.num_replicas}; }

  int64_t num_samples() const { return size() / options_.num_replicas; }  // of this replica
  // Returns this replica's indices in the epoch of the last set_epoch, or in epoch 0.
  std::vector<int64_t> indices() const;
  // Makes every order from now on that of `epoch`, also for a loader, until set_epoch is called again.
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

 private:
  int64_t size_;
  DistributedSamplerOptions options_;
  std::optional<uint64_t> epoch_;
};

// Returns the share of `rank`: positions rank, rank + world_size, ... of the order. For any number of ranks,
// the first k samples of all ranks' shares are together the first k * world_size samples. Shares differ in
// size by at most one sample.
std::vector<int64_t> shard(const std::vector<int64_t>& order, int rank, int world_size);

}  // namespace gradus::data
