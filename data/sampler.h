// Samplers: in which order an epoch visits the samples. An order is a pure function of the epoch, so that any
// process can compute it again: to resume in the middle of an epoch, or to take its share of it.
#pragma once

#include <cstdint>
#include <vector>

namespace gradus::data {

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Samples in an epoch.
  virtual int64_t size() const = 0;
  // Returns the indices that epoch `epoch` visits, in order, over all ranks.
  virtual std::vector<int64_t> order(uint64_t epoch) const = 0;
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

// Returns rank's share of an order: positions rank, rank + world_size, ... The first k shares of all ranks
// together are the first k * world_size samples, whatever the number of ranks; shares differ by one sample at
// most.
std::vector<int64_t> shard(const std::vector<int64_t>& order, int rank, int world_size);

}  // namespace gradus::data
