#include "gradus/train/internal/stop.h"

#include <exception>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::training::internal {

Stop::~Stop() {
  try {
    if (under_way_) under_way_->wait();
  } catch (const std::exception&) {
    // The job has failed: that is being told already.
  }
}

bool Stop::agreed() {
  if (dist::get_world_size() == 1) return interrupt_.requested();
  bool stop = false;
  if (under_way_) {
    under_way_->wait();
    stop = asked_.item<int32_t>() != 0;
  }
  asked_ = full({1}, interrupt_.requested(), {.dtype = DType::kI32});
  under_way_ = dist::all_reduce(asked_, {.op = dist::ReduceOp::kMax, .async_op = true});
  return stop;
}

}  // namespace gradus::training::internal
