#include "gradus/train/internal/stop.h"

#include <exception>

#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::training::internal {

Stop::~Stop() {
  try {
    if (all_reduce_) all_reduce_->wait();
  } catch (const std::exception&) {
    // The job has failed, and another error reports the failure.
  }
}

bool Stop::agreed() {
  if (dist::get_world_size() == 1) return interrupt_.requested();
  bool stop = false;
  if (all_reduce_) {
    all_reduce_->wait();
    stop = requested_.item<int32_t>() != 0;
  }
  requested_ = full({1}, interrupt_.requested(), {.dtype = DType::kI32});
  all_reduce_ = dist::all_reduce(requested_, {.op = dist::ReduceOp::kMax, .async_op = true});
  return stop;
}

}  // namespace gradus::training::internal
