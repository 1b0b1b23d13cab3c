// CapturedCalls: the collectives of a step that is captured on a GPU (CapturedStep), and the launches of its graph.
//
// Note [Captured calls]
// In the recording the members exchange the records of each call as usual, on the calling thread. NCCL's calls go to a
// side stream of the capture, so that they overlap with the step's kernels, and become nodes of the graph. A launch of
// the graph is one call of the group that made the step's first call: the members exchange a record with the number of
// that first call, which identifies the recording, and the launch takes its turn in the IssueOrder. If a member has no
// recording for its inputs, such as a smaller last batch, it says so in the record, and no member launches. The graph runs
// behind the rank's earlier calls on the GPU and before the later ones. DeviceCalls watches it. All groups of the step
// have the same members, so the first group's agreement holds for all calls.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "gradus/distributed/group/group_state.h"
#include "gradus/tensor/runtime/capture.h"

namespace gradus::dist::internal {

class CapturedCalls final : public ReplayHook {
 public:
  // `number` is that of the step's first call in `group`.
  CapturedCalls(Ref<GroupState> group, uint64_t number, Device device)
      : group_(std::move(group)), number_(number), device_(device) {}

  // Returns those of the capture, or null.
  static CapturedCalls* of(const Capture& capture) {
    return static_cast<CapturedCalls*>(capture.replay_hook.get());
  }

  const GroupState& group() const { return *group_; }
  // Registers a connection that a call of the step uses.
  void add(const std::shared_ptr<DeviceCollectives>& connection);

  // Errors: MismatchError on all members if another one launches another recording, or makes another call; the job's
  // failure, or a timeout.
  bool replay(const std::function<void()>& launch) override { return run(int64_t(number_), launch); }
  bool skip(bool is_recording) override { return run(is_recording ? kRecords : kRuns, {}); }
  void recorded(const std::shared_ptr<CapturedGraph>& graph) override;
  // Fails the job: the other members would wait for this one in their launch.
  void failed(const std::exception_ptr& error) noexcept override;

 private:
  static constexpr int64_t kRuns = 0,
                           kRecords = -1;  // what a member does; else the number of the recording to launch
  bool run(int64_t action, const std::function<void()>& launch);

  const Ref<GroupState> group_;
  const uint64_t number_;
  const Device device_;
  std::vector<std::shared_ptr<DeviceCollectives>> connections_;
};

}  // namespace gradus::dist::internal
