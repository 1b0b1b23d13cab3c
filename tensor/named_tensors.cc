// Lookup by name: a linear search. The error lists at most 50 of the existing names.
#include "gradus/tensor/named_tensors.h"

#include <algorithm>

namespace gradus {

bool NamedTensors::contains(std::string_view name) const {
  return std::any_of(begin(), end(), [&](const auto& entry) { return entry.first == name; });
}

const Tensor& NamedTensors::at(std::string_view name) const {
  constexpr size_t kShown = 50;
  std::string names;
  for (size_t i = 0; i < size(); ++i) {
    const auto& [entry_name, x] = (*this)[i];
    if (entry_name == name) return x;
    if (i < kShown) names += (i ? ", " : "") + entry_name;
  }
  if (size() > kShown) names += concat(", ... (", size(), " in all)");
  throw ValueError("at", "there is no '", name, "'; there are: ", names.empty() ? "none" : names);
}

}  // namespace gradus
