#include "gradus/data/endless.h"

namespace gradus::data {

const Batch& Endless::next() {
  if (at_) ++*at_;
  // A loader that was resumed at the end of an epoch has one empty pass; the next pass is not empty.
  for (int passes = 0; !at_ || *at_ == std::default_sentinel; ++passes) {
    if (passes == 2)
      throw ValueError("Endless", "the loader of ", loader_->dataset().name(), " has no batches");
    at_.reset();  // ends the previous workers before new ones start
    at_ = loader_->begin();
  }
  return **at_;
}

}  // namespace gradus::data
