// BatchIterator: the input iterator of DataLoader and IterableLoader.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

#include "gradus/data/dataset.h"

namespace gradus::data {

namespace internal {
class ReadAhead;
}

// Its batch is valid until the next increment. Ends after the last batch, and when an increment throws. The
// destructor stops the reading threads after the batches that they are reading (with a timeout, it waits for at
// most that). May outlive the loader.
class BatchIterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using reference = const Batch&;
  using pointer = const Batch*;
  using iterator_category = std::input_iterator_tag;

  // Takes the first batch. Called by the loaders.
  explicit BatchIterator(std::unique_ptr<internal::ReadAhead> batches);
  BatchIterator(BatchIterator&&) noexcept;
  BatchIterator& operator=(BatchIterator&&) noexcept;
  ~BatchIterator();

  const Batch& operator*() const { return batch_; }
  const Batch* operator->() const { return &batch_; }
  BatchIterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return !batches_; }

 private:
  std::unique_ptr<internal::ReadAhead> batches_;  // null at the end
  Batch batch_;
};

}  // namespace gradus::data
