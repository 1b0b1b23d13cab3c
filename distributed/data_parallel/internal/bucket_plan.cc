#include "gradus/distributed/data_parallel/internal/bucket_plan.h"

#include <algorithm>

namespace gradus::dist::internal {

std::vector<std::vector<size_t>> assign_buckets(std::span<const BucketItem> items,
                                                std::span<const int64_t> limits) {
  struct Open {
    DType dtype;
    Device device;
    size_t limit = 0;  // index
    int64_t bytes = 0;
    std::vector<size_t> indices;
  };
  std::vector<Open> open;
  std::vector<std::vector<size_t>> buckets;
  const auto close = [&](Open& o) {
    buckets.push_back(std::move(o.indices));
    o.indices.clear();
    o.bytes = 0;
    o.limit = std::min(o.limit + 1, limits.size() - 1);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const BucketItem& item = items[i];
    auto o = std::ranges::find_if(
        open, [&](const Open& o) { return o.dtype == item.dtype && o.device == item.device; });
    if (o == open.end()) o = open.insert(o, Open{item.dtype, item.device});
    o->indices.push_back(i);
    o->bytes += item.bytes;
    if (o->bytes >= limits[o->limit]) close(*o);
  }
  for (Open& o : open)
    if (!o.indices.empty()) close(o);
  std::ranges::sort(buckets, {}, [](const auto& indices) { return indices[0]; });
  return buckets;
}

void Fingerprint::add(const Tensor& x) {
  add(uint64_t(x.dtype()));
  add(uint64_t(x.dim()));
  for (int64_t n : x.shape()) add(uint64_t(n));
}

}  // namespace gradus::dist::internal
