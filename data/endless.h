// Endless: an infinite sequence of the batches of a DataLoader, epoch after epoch, for loops that count steps.
//
//   data::Endless batches(loader);
//   for (int step = 0; step < steps; ++step) {
//     const Tensor real = batches.next().input;
//     ...
//   }
//   for (const data::Batch& b : data::Endless(loader)) { ...; if (done) break; }
#pragma once

#include <iterator>
#include <optional>

#include "gradus/data/dataloader.h"

namespace gradus::data {

// The position is that of the loader: a loader.state() saved while one batch is in use resumes with the batch
// after it. Not thread-safe.
class Endless {
 public:
  // The loader must outlive the Endless. No other code may iterate over the loader meanwhile.
  explicit Endless(DataLoader& loader) : loader_(&loader) {}

  // Returns the next batch. Starts the next epoch after the last batch of an epoch. The reference is valid until
  // the next call.
  // Errors: those of DataLoader::Iterator, which end the epoch, so that a later call starts the next epoch;
  // ValueError if the loader has no batches.
  const Batch& next();

  // An input iterator. begin() and ++ call next(), so all iterators of an Endless advance the same sequence.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return batch_; }
    Iterator& operator++() {
      batch_ = &endless_->next();
      return *this;
    }
    void operator++(int) { ++*this; }

   private:
    friend class Endless;
    explicit Iterator(Endless* endless) : endless_(endless), batch_(&endless->next()) {}
    Endless* endless_;
    const Batch* batch_;
  };
  Iterator begin() { return Iterator(this); }
  std::unreachable_sentinel_t end() const { return {}; }

 private:
  DataLoader* loader_;
  std::optional<DataLoader::Iterator> at_;  // position in the current epoch; empty before the first batch
};

}  // namespace gradus::data
