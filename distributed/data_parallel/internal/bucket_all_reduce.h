// The all-reduce of a bucket for reducers without a comm hook.
#pragma once

#include <memory>
#include <vector>

#include "gradus/distributed/data_parallel/internal/backward_exchange.h"
#include "gradus/distributed/data_parallel/internal/bucket.h"
#include "gradus/distributed/data_parallel/internal/reducer_config.h"
#include "gradus/distributed/data_parallel/internal/reducer_statistics.h"

namespace gradus::dist::internal {

// Returns a queued collective that packs the used gradients into `memory` and all-reduces them. The group
// runs its collectives in order, so when the call starts, `exchange` is complete and defines which gradients are
// used. `memory` gets the result, except for gradients that are reduced in place. `traffic` gets the times.
Collective bucket_all_reduce(const ReducerConfig& config, const std::shared_ptr<BackwardExchange>& exchange,
                             const Tensor& memory, std::vector<BucketEntry> entries,
                             const std::shared_ptr<BucketTraffic>& traffic);

}  // namespace gradus::dist::internal
