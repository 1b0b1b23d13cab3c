#include "gradus/distributed/data_parallel/internal/divergence.h"

#include <algorithm>

#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/backward_exchange.h"

namespace gradus::dist::internal {

std::optional<Difference> find_difference(const Group& group, const std::vector<Tensor>& tensors) {
  std::vector<int64_t> mine;
  for (const Tensor& x : tensors) mine.push_back(checksum_of(x));
  const auto all = exchange_numbers(group, mine);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const auto votes = [&](const auto& member) {
      return std::ranges::count_if(all, [&](const auto& other) { return other[t] == member[t]; });
    };
    const auto usual = std::ranges::max_element(all, {}, votes);
    const auto odd = std::ranges::find_if(all, [&](const auto& member) { return member[t] != (*usual)[t]; });
    if (odd != all.end()) return Difference{t, int(odd - all.begin()), int(usual - all.begin())};
  }
  return std::nullopt;
}

std::vector<NotFinite> share(const Group& group, const NotFinite& mine) {
  std::vector<NotFinite> all;
  for (const auto& numbers : exchange_numbers(group, {mine.tensor, mine.element}))
    all.push_back({numbers[0], numbers[1]});
  return all;
}

}  // namespace gradus::dist::internal
