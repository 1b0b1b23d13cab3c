// Helpers of programs that run on several ranks: any_rank, and functions with the names of mmengine.dist. Without a
// job, a group has one rank. The functions are collective over the group, except is_main_process and master_only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/distributed/group/object.h"
#include "gradus/distributed/group/process_group.h"

namespace gradus::dist {

// Returns whether this rank is the group's first.
inline bool is_main_process(const Group& group = {}) { return get_rank(group) == 0; }

// Returns a function that calls f on the group's first rank, and does nothing on other ranks. It returns nothing,
// or an optional with f's result, which is empty on other ranks.
//   auto log = dist::master_only([](double loss) { std::cout << loss << std::endl; });
template <class F> auto master_only(F f, const Group& group = {}) {
  return [f = std::move(f), group](auto&&... args) mutable {
    using Result = std::invoke_result_t<F&, decltype(args)...>;
    if constexpr (std::is_void_v<Result>) {
      if (is_main_process(group)) f(std::forward<decltype(args)>(args)...);
    } else {
      std::optional<std::decay_t<Result>> result;
      if (is_main_process(group)) result.emplace(f(std::forward<decltype(args)>(args)...));
      return result;
    }
  };
}

// Returns, on all ranks of the group, whether `local` is true on at least one of them: with it, either all ranks
// or none skip a GradScaler's step. An all_reduce of a flag on the CPU. Errors: those of all_reduce.
bool any_rank(bool local, const Group& group = {});

// Returns one seed for all ranks of the group: the first rank's `seed`, or a random one.
uint64_t sync_random_seed(std::optional<uint64_t> seed = {}, const Group& group = {});

// Reduces the tensors of each name over the ranks, in place; those of one dtype that follow each other by name
// are one message.
// Errors: MismatchError, the same on all ranks, unless all have the same names; those of all_reduce.
void all_reduce_dict(const std::map<std::string, Tensor>& tensors, const AllReduceOptions& options = {});

struct AllReduceParamsOptions {
  ReduceOperation op = ReduceOp::kSum;
  bool coalesce = true;        // several tensors of one dtype as one message; false: a message each
  double bucket_size_mb = -1;  // MiB of a message at which the next one begins; -1: one message per dtype
  Group group = {};
};
// Reduces a module's parameters, or any tensors, over the ranks, in place.
// Errors: those of all_reduce; ValueError for a bucket_size_mb of 0 or NaN.
void all_reduce_params(const std::vector<Tensor>& params, const AllReduceParamsOptions& options = {});

namespace internal {
// Errors: ValueError for a negative size, or parts with fewer results.
void check_results(int64_t size, const std::vector<int64_t>& parts);
}  // namespace internal

// Collects the results of a data set's `size` samples on rank dst, in the order of the samples, where rank r has
// those of samples r, r + (group size), ...: the order of DistributedSampler without shuffling, and of loaders.
// Parts may differ in length; results beyond `size`, of repeated samples, are dropped. Returns an empty vector on
// other ranks. T as for gather_object.
// Errors: ValueError on rank dst if samples have no result; those of gather_object.
template <class T>
std::vector<T> collect_results(const std::vector<T>& part, int64_t size, const GatherOptions& options = {}) {
  std::vector<std::vector<T>> parts = gather_object(part, options);
  if (parts.empty()) return {};
  std::vector<int64_t> sizes;
  for (const std::vector<T>& one : parts) sizes.push_back(int64_t(one.size()));
  internal::check_results(size, sizes);
  std::vector<T> results;
  for (int64_t i = 0; i < size; ++i)
    results.push_back(std::move(parts[size_t(i) % parts.size()][size_t(i) / parts.size()]));
  return results;
}

}  // namespace gradus::dist
