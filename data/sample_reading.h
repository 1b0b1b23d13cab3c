// Helpers of functions that read samples: random generators of epochs, batches and samples, errors that name the
// sample, and copies.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>

#include "gradus/data/dataset.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data::internal {

inline uint64_t first_64_bits(const std::array<uint32_t, 4>& words) {
  return (uint64_t(words[0]) << 32) | words[1];
}

// Returns the generator of an epoch's random ops, from which each sample's generator is derived. Its numbers
// depend only on (seed, epoch), not on workers or timing.
inline std::shared_ptr<RandomGenerator> epoch_generator(uint64_t seed, uint64_t epoch) {
  constexpr uint64_t kAugmentStream = uint64_t{3} << 62;
  return std::make_shared<RandomGenerator>(first_64_bits(philox(seed, kAugmentStream, epoch)));
}

// Returns the generator of a batch transform. `position` is that of the batch's first sample in the order.
inline std::shared_ptr<RandomGenerator> batch_generator(uint64_t seed, uint64_t epoch, int64_t position) {
  constexpr uint64_t kBatchStream = (uint64_t{3} << 62) + 1;
  const uint64_t epoch_key = first_64_bits(philox(seed, kBatchStream, epoch));
  return std::make_shared<RandomGenerator>(
      first_64_bits(philox(epoch_key, 0, static_cast<uint64_t>(position))));
}

// Replaces the generator of the calling thread's Context until destruction, in the same thread.
// begin_sample() seeds the new generator by one draw of the original one (at construction) and the sample's
// index, so a sample's random numbers do not depend on other samples.
class SampleGenerator {
 public:
  SampleGenerator() : context_(Context::current()), outer_(context_.generator), key_(outer_->next()) {
    context_.generator = own_;
  }
  ~SampleGenerator() { context_.generator = outer_; }
  SampleGenerator(const SampleGenerator&) = delete;
  SampleGenerator& operator=(const SampleGenerator&) = delete;

  // Must be called before each sample is read.
  void begin_sample(int64_t index) {
    own_->manual_seed(first_64_bits(philox(key_.seed, key_.stream, static_cast<uint64_t>(index))));
  }

 private:
  Context& context_;
  std::shared_ptr<RandomGenerator> outer_;
  std::shared_ptr<RandomGenerator> own_ = std::make_shared<RandomGenerator>();
  PhiloxKey key_;
};

// Copies a host tensor of any strides to `out`, row-major.
void copy_elements(const Tensor& x, char* out);

// Returns read(). Nests every exception in a SampleError with the index; a SampleError passes unchanged.
template <class D, class F> auto with_sample_error(const D& dataset, int64_t index, F&& read) {
  try {
    return read();
  } catch (const SampleError&) {
    throw;
  } catch (const std::exception& e) {
    std::throw_with_nested(SampleError(dataset.name(), index, e.what()));
  } catch (...) {
    std::throw_with_nested(SampleError(dataset.name(), index, "an exception that is no std::exception"));
  }
}

}  // namespace gradus::data::internal
