// Work: forwards to its WorkState; a wait is a range in profiles.
#include "gradus/distributed/group/work.h"

#include "gradus/tensor/runtime/context.h"

namespace gradus::dist {

void Work::wait(std::optional<Milliseconds> timeout) const {
  if (!state_) return;
  state_->check_process();
  const RunningRange running = observed({.kind = RangeKind::kCollective, .name = "wait for work"});
  state_->wait(timeout);
}
bool Work::is_completed() const {
  if (!state_) return true;
  state_->check_process();
  return state_->is_completed();
}

}  // namespace gradus::dist
