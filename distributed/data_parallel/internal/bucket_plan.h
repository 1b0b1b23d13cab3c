// BucketPlan: the assignment of gradients to buckets, as in PyTorch's DistributedDataParallel. A bucket is
// one message in place of many small ones. Attached tensors are the parameters of an all-reduce callback, in
// the order of attaching. A backward reaches a parameter if it computes the parameter's gradient.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/data_parallel/internal/consensus.h"

namespace gradus::dist::internal {

struct BucketItem {
  int64_t bytes = 0;
  DType dtype = DType::kF32;
  Device device;
};

// Assigns items, in order, to buckets of one dtype and device each. A bucket is closed once its size reaches
// its limit: limits[0] for the first bucket of a dtype and device, limits[1] for the second, and so on; the
// last limit applies to all further buckets. Limits are in bytes; there is at least one. Returns the items'
// indices per bucket, with buckets ordered by their first item.
// Source: the same result as PyTorch's _compute_bucket_assignment_by_size.
std::vector<std::vector<size_t>> assign_buckets(std::span<const BucketItem> items,
                                                std::span<const int64_t> limits);

// Note [Bucket order]
// The plan depends on the attached tensors and the options only. Tensors are assigned in the reverse order of
// attaching, which approximates the order in which backward produces gradients. All ranks attach the same
// tensors, so all ranks have the same plan. The plan changes only when tensors are attached or destroyed, and
// with rebuild_buckets at the end of the next backward: one rank then broadcasts its order of gradients.
//
// At the start of a backward each rank determines from the graph which tensors it will reach, and sends this
// set to the other ranks while the backward runs. In each backward a bucket contains exactly the gradients
// that some rank reaches; a bucket without any is skipped. A gradient that this rank does not reach counts as
// zeros. So no bucket waits for a gradient that is never computed, and ranks may take different paths through
// the model.
//
// Buckets are sent in the order of their indices: a bucket that is complete early waits for the buckets
// before it. So all ranks run the same collectives in the same order, whatever the order of their gradients.
struct BucketPlan {
  std::vector<std::vector<size_t>> buckets;  // indices of attached tensors, in the order of sending
  std::vector<Tensor> memory;  // per bucket: its memory in the last backward; undefined: none yet
  int64_t fingerprint;         // checksum of everything that the plan depends on
  // What the plan depends on as text, for errors: one line with the options, then one line per tensor.
  std::shared_ptr<const std::vector<std::string>> lines;
  bool rebuilds = false;  // rebuild_buckets: the order of the next backward replaces this plan
  // static_graph: the first backward's Consensus, which all later backwards reuse. Null before.
  std::shared_ptr<const Consensus> static_consensus = {};

  // Assigns the tensors to buckets in this order, a permutation of all indices. Makes no `memory` yet.
  void assign(const std::vector<size_t>& order, const AllReduceCallbackOptions& options,
              const AttachedParams& params);
};

// Returns the caps in bytes of the first bucket and of the other buckets.
// Errors: ValueError for a cap that is not positive.
std::array<int64_t, 2> caps_of(const AllReduceCallbackOptions& options);
// All tensors of `params` must exist. Makes no `memory` yet.
// Errors: ValueError for more than kMaxAttachedTensors tensors.
std::shared_ptr<BucketPlan> make_plan(ReduceOp op, const AllReduceCallbackOptions& options,
                                      const AttachedParams& params);

}  // namespace gradus::dist::internal
