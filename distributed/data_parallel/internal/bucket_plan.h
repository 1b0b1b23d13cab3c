// BucketPlan: how gradients are packed into buckets, few large messages instead of many small ones.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/data_parallel/internal/backward_exchange.h"
#include "gradus/distributed/data_parallel/internal/bucket.h"
#include "gradus/distributed/data_parallel/internal/reducer_config.h"

namespace gradus::dist::internal {

struct BucketItem {
  int64_t bytes = 0;
  DType dtype = DType::kF32;
  Device device;
};

// Puts items, in their order, into buckets of one dtype and device each. A bucket is closed when it holds at
// least its limit. The limit is limits[0] for the first bucket of a dtype and device, limits[1] for the next,
// and so on; the last limit serves all further buckets. Returns the items' indices, with buckets ordered by
// their first item. These are the lists of PyTorch's _compute_bucket_assignment_by_size.
std::vector<std::vector<size_t>> assign_buckets(std::span<const BucketItem> items,
                                                std::span<const int64_t> limits);

// A hash of shapes and dtypes. Equal shapes and dtypes have equal values; others very likely do not.
class Fingerprint {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3; }
  void add(const Tensor& x);
  int64_t value() const { return int64_t(hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

// Note [Bucket order]
// The plan follows from the attached tensors alone: in the reverse order of attaching, which is about the
// order in which gradients come, grouped by dtype and device, closed at the caps. All ranks attach the same,
// so all have the same plan, whatever they compute, and it never changes but with what is attached.
//
// At the begin of a backward every rank knows from the graph which tensors it will reach, and tells the
// others; the backward goes on meanwhile. A bucket holds what some rank reaches, and nothing else: it is cut
// to size for each backward, and left out when that is empty. What is missing here counts as zeros. So no
// bucket waits for a gradient that does not come, and no rank need know why another one takes another way.
//
// Buckets are sent strictly by index: one whose gradients are early waits for those before it. All ranks then
// call the same collectives in the same order, though their gradients come in different orders.
struct BucketPlan {
  std::vector<Bucket> buckets;
  std::vector<size_t> bucket_of;  // a tensor's bucket
  int64_t fingerprint;
  // What the plan is of: options, then a tensor each.
  std::shared_ptr<const std::vector<std::string>> lines;
  // static_graph: the exchange that settled what is reached. Null: not yet.
  std::shared_ptr<BackwardExchange> settled = {};
};

// Returns the caps in bytes of the first bucket and of the others.
// Errors: ValueError for one that is not positive.
std::array<int64_t, 2> caps_of(const AllReduceCallbackOptions& options);
// Errors: ValueError for more tensors than a note holds.
std::shared_ptr<BucketPlan> make_plan(const ReducerConfig& config, const AttachedParams& params);

}  // namespace gradus::dist::internal
