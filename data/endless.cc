#include "gradus/data/endless.h"

namespace gradus::data {

const Batch& Endless::next() {
  if (at_) ++*at_;
  // A pass is empty when the loader was resumed at the end of an epoch. The pass after it is not empty.
  for (int passes = 0; !at_ || *at_ == std::default_sentinel; ++passes) {
    if (passes == 2)
      throw ValueError("Endless", "the loader of ", loader_->dataset().name(), " has no batches");
    at_.reset();  // its workers end before others start
    at_ = loader_->begin();
  }
  return **at_;
}

}  // namespace gradus::data
