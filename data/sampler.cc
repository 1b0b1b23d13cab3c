#include "gradus/data/sampler.h"

#include <numeric>
#include <utility>

#include "gradus/tensor/error.h"
#include "gradus/tensor/random.h"

namespace gradus::data {
namespace {

std::vector<int64_t> iota(int64_t size) {
  std::vector<int64_t> v(static_cast<size_t>(size));
  std::iota(v.begin(), v.end(), int64_t{0});
  return v;
}

int64_t checked_size(const char* sampler, int64_t size) {
  if (size < 0) throw ValueError(sampler, "size must not be negative, given ", size);
  return size;
}

// Uniform in [0, bound), by the high half of a 64 x 64 bit product: the bias is below bound / 2^64.
uint64_t bounded(uint64_t bits, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

// Keeps these draws apart from the generators of ops, which number their streams from zero.
constexpr uint64_t kShuffleStream = uint64_t{1} << 63;

}  // namespace

SequentialSampler::SequentialSampler(int64_t size) : size_(checked_size("SequentialSampler", size)) {}

std::vector<int64_t> SequentialSampler::order(uint64_t) const { return iota(size_); }

RandomSampler::RandomSampler(int64_t size, uint64_t seed)
    : size_(checked_size("RandomSampler", size)), seed_(seed) {}

std::vector<int64_t> RandomSampler::order(uint64_t epoch) const {
  std::vector<int64_t> v = iota(size_);
  for (size_t i = v.size(); i > 1; --i) {
    const auto bits = philox(seed_, kShuffleStream | epoch, i);
    std::swap(v[i - 1], v[bounded((uint64_t(bits[0]) << 32) | bits[1], i)]);
  }
  return v;
}

std::vector<int64_t> shard(const std::vector<int64_t>& order, int rank, int world_size) {
  if (world_size < 1 || rank < 0 || rank >= world_size)
    throw ValueError("shard", "rank must lie in [0, world_size), given rank ", rank, " of ", world_size);
  if (world_size == 1) return order;
  std::vector<int64_t> mine;
  mine.reserve(order.size() / static_cast<size_t>(world_size) + 1);
  for (size_t i = static_cast<size_t>(rank); i < order.size(); i += static_cast<size_t>(world_size))
    mine.push_back(order[i]);
  return mine;
}

}  // namespace gradus::data
