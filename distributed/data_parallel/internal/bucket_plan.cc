// Assigns the gradients of data-parallel training to the buckets that are all-reduced together, as PyTorch's
// DistributedDataParallel. The assignment is greedy, in the reverse order in which the tensors were attached
// to the all-reduce callback, which approximates the order in which backward produces the gradients. Plans
// are equal on all ranks that attach equal tensors with equal options. Attached tensors must still exist.
#include "gradus/distributed/data_parallel/internal/bucket_plan.h"

#include <algorithm>

#include "gradus/distributed/data_parallel/checksum.h"

namespace gradus::dist::internal {

std::vector<std::vector<size_t>> assign_buckets(std::span<const BucketItem> items,
                                                std::span<const int64_t> limits) {
  // The bucket of one dtype and device that takes further items. With each bucket its `limit` advances.
  struct OpenBucket {
    DType dtype;
    Device device;
    size_t limit = 0;  // index in `limits`
    int64_t bytes = 0;
    std::vector<size_t> indices;
  };
  std::vector<OpenBucket> open;
  std::vector<std::vector<size_t>> buckets;
  const auto close = [&](OpenBucket& o) {
    buckets.push_back(std::move(o.indices));
    o.indices.clear();
    o.bytes = 0;
    o.limit = std::min(o.limit + 1, limits.size() - 1);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    const BucketItem& item = items[i];
    auto o = std::ranges::find_if(
        open, [&](const OpenBucket& o) { return o.dtype == item.dtype && o.device == item.device; });
    if (o == open.end()) o = open.insert(o, OpenBucket{item.dtype, item.device});
    o->indices.push_back(i);
    o->bytes += item.bytes;
    if (o->bytes >= limits[o->limit]) close(*o);
  }
  for (OpenBucket& o : open)
    if (!o.indices.empty()) close(o);
  std::ranges::sort(buckets, {}, [](const auto& indices) { return indices[0]; });
  return buckets;
}

// Converts the options' MiB to bytes.
std::array<int64_t, 2> caps_of(const AllReduceCallbackOptions& options) {
  const auto bytes = [](double mb, const char* name) {
    if (!(mb > 0)) throw ValueError("make_allreduce_cb", name, " must be positive, got ", mb);
    return int64_t(std::min(mb, 1e9) * (1 << 20));
  };
  const int64_t cap = bytes(options.bucket_cap_mb, "bucket_cap_mb");
  return {bytes(options.first_bucket_mb, "first_bucket_mb"), cap};
}

void BucketPlan::assign(const std::vector<size_t>& order, const AllReduceCallbackOptions& options,
                        const AttachedParams& params) {
  std::vector<BucketItem> items;
  for (size_t i : order) {
    const Tensor x = params.tensor(i);
    items.push_back({x.nbytes(), x.dtype(), x.device()});
  }
  buckets = assign_buckets(items, caps_of(options));
  for (auto& indices : buckets)
    for (size_t& i : indices) i = order[i];
  memory.assign(buckets.size(), Tensor());
}

std::shared_ptr<BucketPlan> make_plan(ReduceOp op, const AllReduceCallbackOptions& o,
                                      const AttachedParams& params) {
  const size_t n = params.size();
  if (int64_t(n) > kMaxAttachedTensors)
    throw ValueError("backward", "at most ", kMaxAttachedTensors,
                     " tensors can share an all-reduce callback, got ", n);
  const auto plan = std::make_shared<BucketPlan>();
  // What the plan depends on, as text in two forms. Ranks compare the checksum of `text`, which has the
  // tensors' devices. Only if the checksums differ, ranks exchange `lines`, which have the tensors' names,
  // for the error.
  std::vector<std::string> lines = {concat(
      dist::name_of(op), " with bucket_cap_mb = ", o.bucket_cap_mb, ", first_bucket_mb = ", o.first_bucket_mb,
      ", uneven_no_sync = ", o.uneven_no_sync, ", static_graph = ", o.static_graph, ", check_finite = ",
      o.check_finite, ", a comm_hook = ", bool(o.comm_hook), ", broadcast_after = ", bool(o.broadcast_after),
      ", check_divergence_every = ", o.check_divergence_every, ", rebuild_buckets = ", o.rebuild_buckets)};
  const std::array<int64_t, 2> caps = caps_of(o);
  std::string text = concat(lines[0], ' ', caps[0], ' ', caps[1]);
  std::vector<size_t> order;
  std::vector<Device> devices;  // numbered by first occurrence, since device names may differ between ranks
  for (size_t i = n; i-- > 0;) {
    const Tensor x = params.tensor(i);
    order.push_back(i);
    const auto device = std::ranges::find(devices, x.device());
    text += concat(' ', x.dtype(), x.shape(), " on ", device - devices.begin());
    if (device == devices.end()) devices.push_back(x.device());
  }
  for (size_t i = 0; i < n; ++i) {
    const Tensor x = params.tensor(i);
    lines.push_back(concat(params.name_of(i), ' ', x.dtype(), x.shape()));
  }
  plan->fingerprint = checksum_of(text);
  plan->lines = std::make_shared<const std::vector<std::string>>(std::move(lines));
  plan->assign(order, o, params);
  plan->rebuilds = o.rebuild_buckets;
  return plan;
}

}  // namespace gradus::dist::internal
