// Implementation of bucket_all_reduce.
#include "gradus/distributed/data_parallel/internal/bucket_all_reduce.h"

#include <cstring>

namespace gradus::dist::internal {

Collective bucket_all_reduce(const ReducerConfig& config, const std::shared_ptr<BackwardExchange>& exchange,
                             const Tensor& memory, std::vector<BucketEntry> entries,
                             const std::shared_ptr<BucketTraffic>& traffic) {
  Collective call{.op = "backward"};
  call.prepare = [entries = std::move(entries), x = memory, exchange, traffic, op = config.op,
                  size = config.group.size()](Collective& call) {
    const Consensus& consensus = exchange->consensus();
    traffic->start = clock_now();
    // Segments {data, bytes}, each reduced by one call: packed small gradients, or a single large gradient,
    // which is reduced in its own memory if in_place.
    std::vector<std::pair<char*, int64_t>> segments;
    std::vector<Tensor> in_place;
    char* const begin = static_cast<char*>(x.raw_ptr());
    char* end = begin;
    bool last_is_packed = false;
    for (const BucketEntry& entry : entries) {
      if (!consensus.used[entry.param] || entry.bytes == 0) continue;
      const bool separate = entry.bytes >= kMinSeparateBytes;
      char* data_begin = end;
      end += entry.bytes;
      if (entry.in_place) {
        data_begin = static_cast<char*>(entry.grad.raw_ptr());
        in_place.push_back(entry.grad);
      } else if (entry.grad.defined()) {
        std::memcpy(data_begin, entry.grad.raw_ptr(), size_t(entry.bytes));
      } else {
        std::memset(data_begin, 0, size_t(entry.bytes));
      }
      if (!separate && last_is_packed)
        segments.back().second += entry.bytes;
      else
        segments.emplace_back(data_begin, entry.bytes);
      last_is_packed = !separate;
    }
    const int64_t bytes = end - begin, n = bytes / size_of(x.dtype());
    traffic->end = traffic->start;
    if (n == 0) return false;
    // With joined ranks the divisor may be less than the group's size: sum first, divide afterward.
    const int divisor = consensus.divisor;
    const ReduceOp reduce = op == ReduceOp::kAvg && divisor != size ? ReduceOp::kSum : op;
    call.record = {
        .op = Op::kAllReduce, .reduce = reduce, .dtype = x.dtype(), .ndim = 1, .dims = {n}, .bytes = bytes};
    call.move = [=](MatchedCall& matched) {
      for (const auto& [data, bytes] : segments) {
        const int64_t count = bytes / size_of(x.dtype());
        matched.backend.all_reduce(matched.call, data, data, count, x.dtype(), reduce);
        if (reduce != op) finish_reduce(data, count, x.dtype(), op, divisor);
      }
      x.storage()->bump_version();
      for (const Tensor& grad : in_place) grad.storage()->bump_version();
      traffic->end = clock_now();
    };
    return true;
  };
  call.check = [&state = config.group.state()](const MatchedCall& matched) {
    return find_size_mismatch(matched, state, [](const std::vector<int64_t>& sizes) {
      return sizes.size() == 2 ? concat("bucket ", sizes[1], " of backward ", sizes[0]) : "nonsense";
    });
  };
  return call;
}

}  // namespace gradus::dist::internal
