// Helpers of functions that read samples: a random generator per sample, and errors that name the sample.
#pragma once

#include <exception>
#include <memory>

#include "gradus/data/dataset.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::data::internal {

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
    const auto bits = philox(key_.seed, key_.stream, static_cast<uint64_t>(index));
    own_->manual_seed((uint64_t(bits[0]) << 32) | bits[1]);
  }

 private:
  Context& context_;
  std::shared_ptr<RandomGenerator> outer_;
  std::shared_ptr<RandomGenerator> own_ = std::make_shared<RandomGenerator>();
  PhiloxKey key_;
};

// Returns read(). Nests every exception in a SampleError with the index; a SampleError passes unchanged.
template <class F> auto with_sample_error(const Dataset& dataset, int64_t index, F&& read) {
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
