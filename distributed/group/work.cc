#include "gradus/distributed/group/work.h"

#include "gradus/distributed/group/work_state.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist {

Work::Work() = default;
Work::Work(Ref<internal::WorkState> state) : state_(std::move(state)) {}
Work::~Work() = default;
Work::Work(const Work&) = default;
Work& Work::operator=(const Work&) = default;

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
int Work::source_rank() const { return state_ ? state_->source_rank() : -1; }

}  // namespace gradus::dist
