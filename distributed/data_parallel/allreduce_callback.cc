// The functions make_allreduce_cb and the scope NoSync. The callback itself is internal/reducer.cc.
#include "gradus/distributed/data_parallel/allreduce_callback.h"

#include <algorithm>
#include <cctype>

#include "gradus/distributed/data_parallel/internal/reducer.h"

namespace gradus::dist {

NoSync::NoSync(const std::vector<std::shared_ptr<AllReduceCallback>>& callbacks) {
  for (const auto& callback : callbacks) {
    reducers_.push_back(std::static_pointer_cast<internal::Reducer>(callback));
    reducers_.back()->enter_no_sync();
  }
}
NoSync::~NoSync() {
  for (const auto& reducer : reducers_) reducer->leave_no_sync();
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(ReduceOp op, AllReduceCallbackOptions options) {
  return std::make_shared<internal::Reducer>(op, std::move(options), internal::Op::kMakeAllreduceCb);
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, AllReduceCallbackOptions options) {
  std::string name(op);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  if (name == "sum") return make_allreduce_cb(ReduceOp::kSum, std::move(options));
  if (name == "mean") return make_allreduce_cb(ReduceOp::kMean, std::move(options));
  throw ValueError("make_allreduce_cb", "expected \"sum\" or \"mean\", got \"", op, '"');
}

std::shared_ptr<AllReduceCallback> make_allreduce_cb(std::string_view op, const Group& group) {
  return make_allreduce_cb(op, {.group = group});
}

}  // namespace gradus::dist
