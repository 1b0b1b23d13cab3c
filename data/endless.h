// Endless: an endless sequence of a loader's batches over consecutive epochs, for loops that count steps.
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

// The loader's state() stays valid: a state saved during a batch resumes with the next batch.
class Endless {
 public:
  // The loader must outlive the Endless, and must not be iterated over otherwise.
  explicit Endless(DataLoader& loader) : loader_(&loader) {}

  // Returns the next batch, beginning the next epoch after the last batch of an epoch. The batch is valid
  // until the next call.
  // Errors: those of reading the batch; ValueError if the loader has no batches.
  const Batch& next();

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
  std::optional<DataLoader::Iterator> at_;
};

}  // namespace gradus::data
