// The helpers of helpers.h, by collectives of objects and coalesced collectives of tensors.
#include "gradus/distributed/group/helpers.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gradus/distributed/group/group_state.h"

namespace gradus::dist {

bool any_rank(bool local, const Group& group) {
  const Tensor flag = empty({}, {.dtype = DType::kI32});
  *flag.ptr<int32_t>() = local;
  all_reduce(flag, {.op = ReduceOp::kMax, .group = group});
  return *flag.ptr<int32_t>() != 0;
}

uint64_t sync_random_seed(std::optional<uint64_t> seed, const Group& group) {
  std::random_device random;
  return bcast_val(seed.value_or(uint64_t(random()) << 32 | random()), group);
}

void all_reduce_dict(const std::map<std::string, Tensor>& tensors, const AllReduceOptions& options) {
  constexpr const char* kOp = "all_reduce_dict";
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  const auto all = all_gather_object(names, {.group = options.group, .timeout = options.timeout});
  const std::vector<int>& ranks = options.group.ranks();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != all[0])
      throw MismatchError(kOp, ranks[i], "rank ", ranks[i], " has the names ", internal::to_text(all[i]),
                          ", where rank ", ranks[0], " has ", internal::to_text(all[0]));
  coalesced([&] {
    for (const auto& [name, tensor] : tensors) all_reduce(tensor, options);
  });
}

void all_reduce_params(const std::vector<Tensor>& params, const AllReduceParamsOptions& options) {
  constexpr const char* kOp = "all_reduce_params";
  const double limit = options.bucket_size_mb * (1 << 20);
  if (limit == 0 || std::isnan(limit))
    throw ValueError(kOp, "bucket_size_mb must not be 0 or NaN, got ", options.bucket_size_mb);
  std::vector<Work> works;
  const auto reduce = [&](const std::vector<Tensor>& bucket) {
    works.push_back(
        all_reduce_coalesced(bucket, {.op = options.op, .group = options.group, .async_op = true}));
  };
  struct Bucket {
    std::vector<Tensor> tensors;
    int64_t bytes = 0;
  };
  std::vector<Bucket> open;  // one per dtype and device
  for (const Tensor& param : params) {
    if (!param) throw ValueError(kOp, "expected defined tensors, got an undefined one");
    auto bucket = std::ranges::find_if(open, [&](const Bucket& b) {
      return b.tensors[0].dtype() == param.dtype() && b.tensors[0].device() == param.device();
    });
    if (bucket == open.end()) bucket = open.insert(open.end(), Bucket());
    bucket->tensors.push_back(param);
    bucket->bytes += param.nbytes();
    if (options.coalesce && (limit < 0 || double(bucket->bytes) < limit)) continue;
    reduce(bucket->tensors);
    open.erase(bucket);
  }
  for (const Bucket& bucket : open) reduce(bucket.tensors);
  for (const Work& work : works) work.wait();
}

void internal::check_results(int64_t size, const std::vector<int64_t>& parts) {
  constexpr const char* kOp = "collect_results";
  if (size < 0) throw ValueError(kOp, "size must not be negative, got ", size);
  const auto ranks = int64_t(parts.size());
  for (int64_t i = 0; i < ranks; ++i)
    if (const int64_t expected = (size + ranks - 1 - i) / ranks; parts[size_t(i)] < expected)
      throw ValueError(kOp, "expected at least ", expected, " results of group rank ", i, " for ", size,
                       " samples, got ", parts[size_t(i)]);
}

}  // namespace gradus::dist
