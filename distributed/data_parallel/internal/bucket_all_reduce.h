// The all-reduce of a bucket, without a hook.
#pragma once

#include <memory>
#include <vector>

#include "gradus/distributed/data_parallel/internal/backward_exchange.h"
#include "gradus/distributed/data_parallel/internal/bucket.h"
#include "gradus/distributed/data_parallel/internal/reducer_config.h"
#include "gradus/distributed/data_parallel/internal/reducer_statistics.h"

namespace gradus::dist::internal {

// Returns a call that packs and sends when its turn has come. Then the exchange before it is over, and says
// what is sent. `memory` gets the result, but for parts that are reduced in place.
Collective bucket_all_reduce(const ReducerConfig& config, const std::shared_ptr<BackwardExchange>& exchange,
                             const Tensor& memory, std::vector<BucketPart> parts,
                             const std::shared_ptr<BucketTraffic>& traffic);

}  // namespace gradus::dist::internal
