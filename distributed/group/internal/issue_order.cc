// A map of open calls, ordered by number and group: its first call, once agreed, is the next one to be queued.
#include "gradus/distributed/group/internal/issue_order.h"

#include <algorithm>

#include "gradus/distributed/health/waiting.h"

namespace gradus::dist::internal {

IssueOrder::Turn::Turn(IssueOrder& order) : order_(order) {
  const std::lock_guard lock(order_.mutex_);
  key_ = {++order_.count_, {}};
  order_.open_.emplace(key_, this);
}

IssueOrder::Turn::~Turn() {
  {
    const std::lock_guard lock(order_.mutex_);
    order_.open_.erase(key_);
  }
  order_.changed_.notify();
}

void IssueOrder::Turn::agree(uint64_t agreed, const CallSeries& call) {
  {
    const std::lock_guard lock(order_.mutex_);
    order_.open_.erase(key_);
    key_ = {agreed, call};
    order_.open_.emplace(key_, this);
    order_.count_ = std::max(order_.count_, agreed);
  }
  order_.changed_.notify();
}

bool IssueOrder::Turn::is_next() const {
  const std::lock_guard lock(order_.mutex_);
  return order_.open_.begin()->second == this;
}

void IssueOrder::Turn::wait(const char* op, const WaitLimits& limits) {
  const WaitResult result = order_.changed_.wait(
      limits, [&] { return is_next(); }, op);
  if (result != WaitResult::kReady) throw_wait(op, result, limits, {});
}

}  // namespace gradus::dist::internal
