// A part of a data set, for quick runs.
#pragma once

#include <memory>
#include <utility>

#include "gradus/data/dataset.h"

namespace gradus::examples {

// Returns the first `count` samples, or the whole set for 0.
inline std::shared_ptr<const data::Dataset> first_of(std::shared_ptr<const data::Dataset> set,
                                                     int64_t count) {
  if (count == 0 || count >= set->size()) return set;
  return std::make_shared<data::Subset>(data::Subset::first(std::move(set), count));
}

}  // namespace gradus::examples
