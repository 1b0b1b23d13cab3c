// Orders of epochs: Fisher-Yates shuffle, weighted sampling by a binary search in prefix sums, and the
// padding of DistributedSampler. Random numbers are Philox with the seed as key, the epoch as stream and the
// element's number as counter, so an order is a function of the sampler's arguments and the epoch.
#include "gradus/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/environment.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace {

std::vector<int64_t> iota(int64_t size) {
  std::vector<int64_t> v(static_cast<size_t>(size));
  std::iota(v.begin(), v.end(), int64_t{0});
  return v;
}

int64_t checked_size(const char* sampler, int64_t size) {
  if (size < 0) throw ValueError(sampler, "size must not be negative, got ", size);
  return size;
}

// Maps uniform bits to [0, bound): the high half of the 128-bit product. The bias is below bound / 2^64.
uint64_t uniform_below(uint64_t bits, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

// Distinct from the streams of the generators of ops, which are numbered from zero.
constexpr uint64_t kShuffleStream = uint64_t{1} << 63;

}  // namespace

std::optional<Share> Sampler::share() const { return {}; }

SequentialSampler::SequentialSampler(int64_t size) : size_(checked_size("SequentialSampler", size)) {}

std::vector<int64_t> SequentialSampler::order(uint64_t) const { return iota(size_); }

RandomSampler::RandomSampler(int64_t size, uint64_t seed)
    : size_(checked_size("RandomSampler", size)), seed_(seed) {}

std::vector<int64_t> RandomSampler::order(uint64_t epoch) const {
  std::vector<int64_t> v = iota(size_);
  for (size_t i = v.size(); i > 1; --i) {
    const auto bits = philox(seed_, kShuffleStream | epoch, i);
    std::swap(v[i - 1], v[uniform_below((uint64_t(bits[0]) << 32) | bits[1], i)]);
  }
  return v;
}

ReplacementSampler::ReplacementSampler(const std::vector<double>& weights, int64_t num_samples, uint64_t seed)
    : num_samples_(checked_size("ReplacementSampler", num_samples)), seed_(seed) {
  double sum = 0;
  ends_.reserve(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] >= 0) || !std::isfinite(weights[i]))
      throw ValueError("ReplacementSampler", "weights must be finite and not negative, got weights[", i,
                       "] = ", weights[i]);
    if (weights[i] > 0) last_positive_ = static_cast<int64_t>(i);
    ends_.push_back(sum += weights[i]);
  }
  if (!(sum > 0) || !std::isfinite(sum))
    throw ValueError("ReplacementSampler", "the sum of the weights must be positive and finite, got ",
                     weights.size(), " weights of sum ", sum);
}

std::vector<int64_t> ReplacementSampler::order(uint64_t epoch) const {
  std::vector<int64_t> v(static_cast<size_t>(num_samples_));
  for (size_t i = 0; i < v.size(); ++i) {
    const auto bits = philox(seed_, kShuffleStream | epoch, i);
    const double at = uniform_f64(bits[0], bits[1]) * ends_.back();
    // Finds the first index whose end is above `at`. Rounding may make `at` equal to the sum of all
    // weights; last_positive_ then bounds the index.
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), at);
    v[i] = std::min(static_cast<int64_t>(end - ends_.begin()), last_positive_);
  }
  return v;
}

// -1: this rank's replica in its job, which cannot change afterward. A process started as a rank must have
// joined.
DistributedSampler::DistributedSampler(int64_t size, const DistributedSamplerOptions& options)
    : size_(checked_size("DistributedSampler", size)), options_(options) {
  if (options_.num_replicas == -1 || options_.rank == -1) check_joined("DistributedSampler");
  if (options_.num_replicas == -1 || options_.rank == -1) {
    const Replica replica = Job::current()->freeze_replica();
    if (options_.num_replicas == -1) options_.num_replicas = replica.count;
    if (options_.rank == -1) options_.rank = replica.index;
  }
  if (options_.num_replicas < 1 || options_.rank < 0 || options_.rank >= options_.num_replicas)
    throw ValueError("DistributedSampler", "invalid rank ", options_.rank,
                     ", rank should be in the interval [0, ", options_.num_replicas - 1, "]");
}

std::optional<Share> DistributedSampler::share() const { return Share{options_.rank, options_.num_replicas}; }

int64_t DistributedSampler::size() const {
  const int64_t replicas = options_.num_replicas;
  return (options_.drop_last ? size_ : size_ + replicas - 1) / replicas * replicas;
}

std::vector<int64_t> DistributedSampler::order(uint64_t epoch) const {
  if (epoch_) epoch = *epoch_;
  std::vector<int64_t> v = options_.shuffle ? RandomSampler(size_, options_.seed).order(epoch) : iota(size_);
  // Repeats the samples from the first one until v has size() elements.
  for (size_t i = 0; static_cast<int64_t>(v.size()) < size(); ++i) v.push_back(v[i]);
  v.resize(static_cast<size_t>(size()));
  return v;
}

std::vector<int64_t> DistributedSampler::indices() const {
  return shard(order(0), options_.rank, options_.num_replicas);
}

std::vector<int64_t> shard(const std::vector<int64_t>& order, int rank, int world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size)
    throw ValueError("shard", "rank must lie in [0, world_size), got rank ", rank, " of ", world_size);
  if (world_size == 1) return order;
  std::vector<int64_t> indices_of_rank;
  indices_of_rank.reserve(order.size() / static_cast<size_t>(world_size) + 1);
  for (size_t i = static_cast<size_t>(rank); i < order.size(); i += static_cast<size_t>(world_size))
    indices_of_rank.push_back(order[i]);
  return indices_of_rank;
}

}  // namespace gradus::data
