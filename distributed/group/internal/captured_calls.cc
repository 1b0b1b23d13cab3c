// The launch of a captured step as a collective of GroupState, whose `move` queues the graph.
#include "gradus/distributed/group/internal/captured_calls.h"

#include <algorithm>

#include "gradus/distributed/group/agreement.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {

void CapturedCalls::add(const std::shared_ptr<DeviceCollectives>& connection) {
  if (std::ranges::find(connections_, connection) == connections_.end()) connections_.push_back(connection);
}

// Returns whether all members take the same action, and then calls `launch`. `step` is the capture's stream. The calls of
// all groups of this rank are on the current stream of `move`.
bool CapturedCalls::run(int64_t action, const std::function<void()>& launch) {
  const Stream step = current_stream(device_);
  bool all_agree = false;
  Collective call{.op = name_of(Op::kCapturedStep).data(),
                  .record = {.op = Op::kCapturedStep},
                  .sizes = {action},
                  .device = device_,
                  .connections = connections_};
  call.check = [&](const MatchedCall& matched) -> std::optional<Failure> {
    if (std::ranges::any_of(matched.sizes,
                            [](const auto& sizes) { return sizes.size() == 1 && sizes[0] <= 0; }))
      return {};
    return find_size_mismatch(matched, *group_, [](const std::vector<int64_t>& sizes) {
      return sizes.size() == 1 ? concat("the recording that began with call #", sizes[0]) : "nonsense";
    });
  };
  call.move = [&](MatchedCall& matched) {
    all_agree =
        std::ranges::all_of(matched.sizes, [&](const auto& sizes) { return sizes == matched.sizes[0]; });
    if (!all_agree || !launch) return;
    const Stream calls = current_stream(device_);
    step.wait(Event::record(calls));
    launch();
    calls.wait(Event::record(step));
  };
  group_->run(std::move(call), false, {});
  return all_agree;
}

void CapturedCalls::recorded(const std::shared_ptr<CapturedGraph>& graph) {
  for (const auto& one : connections_) one->add_graph(graph);
}

void CapturedCalls::failed(const std::exception_ptr& error) noexcept {
  report_backward_failure(group_->world(), error, "failed in a step that was captured");
}

}  // namespace gradus::dist::internal
