// any_rank as an all_reduce with kMax of one i32 on the CPU.
#include "gradus/distributed/group/any_rank.h"

#include "gradus/distributed/group/collectives.h"

namespace gradus::dist {

bool any_rank(bool local, const Group& group) {
  const Tensor flag = empty({}, {.dtype = DType::kI32});
  *flag.ptr<int32_t>() = local;
  all_reduce(flag, {.op = ReduceOp::kMax, .group = group});
  return *flag.ptr<int32_t>() != 0;
}

}  // namespace gradus::dist
