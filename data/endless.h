// Endless: a loader's batches without end, epoch after epoch, for loops that count steps.
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

// The loader's state() stays valid. When it is saved with a batch in hand, a loop over the resumed loader
// begins with the next batch.
class Endless {
 public:
  // Borrows the loader. Nothing else should iterate over it meanwhile.
  explicit Endless(DataLoader& loader) : loader_(&loader) {}

  // Returns the next batch. After the last batch of an epoch, begins the next epoch. The batch is valid
  // until the next call.
  // Errors: those of reading the batch; ValueError when the loader has no batches.
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
