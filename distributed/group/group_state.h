// GroupState: one rank's side of a group (a communicator): members, collective calls, and the creation of
// further groups. Internal: the public handle is Group.
//
// In a call, the members first exchange a CallRecord (base/call_record.h: sequence number, op, dtype, shape)
// and compare all records, so a mismatch is the same MismatchError on every member. Then the data moves (Note
// [Calls] in group_state.cc). `index` is a rank in the group, `rank` a rank in the job.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/internal/call_queue.h"
#include "gradus/distributed/group/internal/device_links.h"
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/transport/backend.h"

namespace gradus::dist::internal {

// A call that all members take part in, after their records have been exchanged.
struct MatchedCall {
  Backend& backend;  // between hosts' memory
  Call call;
  std::vector<CallRecord> records;          // one per member, in the group's order
  std::vector<std::vector<int64_t>> sizes;  // each member's Collective::sizes
  DeviceCollectives* gpus = nullptr;        // for a call on GPUs

  // What moves the data of the call's tensors.
  Collectives& data() const { return gpus ? static_cast<Collectives&>(*gpus) : backend; }
  // Makes the calls of f, which do not depend on each other.
  void together(const std::function<void()>& f) const { gpus ? gpus->together(call, f) : f(); }
  // Moves every member's `in` to the root's `out`, or the root's `in` to every member's `out`. The list has
  // one block per member on the root, and is empty on the other members. `root` is an index in the group.
  void gather(int root, ConstBlock in, std::vector<Block> out);
  void scatter(int root, std::vector<ConstBlock> in, Block out);
};

// A collective, as GroupState::run takes it. The functions run on the caller's or the queue's thread.
struct Collective {
  const char* op;  // the function's name, for errors; a literal
  CallRecord record;
  // Further numbers for `check`, which a record has no room for.
  // Errors: ValueError for more than about a thousand entries.
  std::vector<int64_t> sizes = {};
  // Returns a failure if the members' calls do not fit together, else nullopt. Uses records and sizes alone,
  // so that all ranks come to the same result.
  std::function<std::optional<Failure>(const MatchedCall&)> check = {};
  std::function<void(MatchedCall&)> move = {};  // moves the data; may be empty
  // Where the call's tensors are, and for a GPU those that `move` uses. There `move` runs with another current stream,
  // whose work comes after what the caller has queued; it queues its own, and returns.
  Device device = kCPU;
  std::vector<Tensor> tensors = {};
  // Called when the group's earlier calls have ended, before the records are exchanged: fills in fields that
  // are known only then. Returns false to skip the call; all members must return the same.
  std::function<bool(Collective&)> prepare = {};
  // Whether the call only agrees on later calls on GPUs. In a captured step it is made once, in the recording.
  bool is_agreement = false;
  // Of the launch of a captured step: those whose calls the graph has.
  std::vector<std::shared_ptr<DeviceCollectives>> connections = {};
};

// The events of a call on a GPU.
struct GpuCall {
  Device device;
  Event posted;  // the caller's work before the call
  Event done;    // set when the call is queued
};

class GroupState final : public Counted {
 public:
  struct Setup {
    Ref<World> world;  // null: a group of one without a job
    uint32_t id = 0;   // equal on all members; no two groups of a rank have the same id
    std::string name;
    std::vector<int> members;                      // ranks in the job
    std::optional<Milliseconds> timeout;           // default: the job's, or 10 minutes without a job
    std::optional<bool> uses_device_library = {};  // default: World::uses_device_library
  };
  // Makes the group. Collective over the members. Other ranks get a state without membership.
  explicit GroupState(Setup setup);
  ~GroupState() override;

  // Runs a collective after the group's earlier ones. With `async`, queues it and returns at once; it then
  // keeps the GroupState alive. In a group of one, an async collective also runs in the call, unless another
  // call is in progress. No `timeout`: the group's. Thread-safe.
  // A call on a GPU is over for the host when it is queued there; the caller's current stream waits for its result.
  // Within a step that is captured: Note [Captured calls] in internal/captured_calls.h.
  // Errors: ValueError at once if this rank is no member; those of the collective, on Work::wait if `async`;
  // StateError "[op] cannot be captured".
  Work run(Collective collective, bool async, std::optional<Milliseconds> timeout);

  bool is_member() const { return index_ >= 0; }
  void check_member(std::string_view op) const;  // Errors: ValueError unless this rank is a member
  int index() const { return index_; }           // this rank's index in the group; -1: no member
  int size() const { return int(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  // Returns the index in the group of a rank in the job.
  // Errors: ValueError that names `what` if the rank is no member.
  int index_of(int rank, std::string_view op, std::string_view what) const;
  uint32_t id() const { return id_; }
  // Identifies the group in the job: groups with the same id have different first members.
  CallSeries series() const {
    return {CallSeries::Kind::kCollective, id_, members_.empty() ? -1 : members_[0]};
  }
  const std::string& name() const { return name_; }
  std::string backend_name() const;
  Milliseconds timeout() const { return timeout_; }
  bool uses_device_library() const { return uses_device_library_; }
  World* world() const { return world_.get(); }
  // Returns limits for waiting: the job's failure, and a deadline after `timeout` (default: the group's).
  WaitLimits wait_limits(std::optional<Milliseconds> timeout) const;

  // The all-reduce callbacks of this group call these. A recording (gradient tape) that ends without a
  // backward is dropped: Note [Dropped steps] in base/call_record.h.
  void backward_begins() {
    backwards_.fetch_add(1);
    dropped_.store(0);
  }
  void recording_dropped() {
    backwards_.fetch_add(1);
    dropped_.store(1);
  }
  void recording_opens() {
    uint8_t dropped = 1;
    dropped_.compare_exchange_strong(dropped, 2);
  }

  // How many calls of group_barrier have passed. The count makes the store keys of each call different.
  std::atomic<int64_t> passed_barriers{0};
  // The last id given to a message of remote_send.
  std::atomic<uint32_t> last_remote_id{0};

 private:
  void check_capture(const Capture& capture, const Collective& collective) const;
  void execute(Collective& collective, const WaitLimits& limits, GpuCall* gpu);
  void move_on_gpu(const Collective& collective, MatchedCall& matched, GpuCall& gpu, const std::string& text);
  void wait_for_turn(IssueOrder::Turn& turn, const Call& call);
  void agree(MatchedCall& matched, const Collective& collective) const;
  [[noreturn]] void fail(const MatchedCall& matched, const Failure& failure) const;

  const Ref<World> world_;
  const uint32_t id_;
  const std::string name_;
  const std::vector<int> members_;
  const Milliseconds timeout_;
  const bool uses_device_library_;
  int index_ = -1;
  std::unique_ptr<Backend> backend_;
  std::optional<DeviceLinks> links_;    // only the running call uses it
  std::atomic<uint32_t> backwards_{0};  // backwards that began, and dropped recordings
  std::atomic<uint8_t> dropped_{0};     // since the last backward: 1: recording dropped, 2: then one opened
  uint64_t calls_ = 0;                  // calls that were not skipped; only the running call uses it
  CallQueue queue_;                     // last, since its calls use the other members
};

// Returns nullopt if all members passed equal Collective::sizes, else a failure that names the first member
// that differs from the most frequent value. `text` writes sizes as text.
std::optional<Failure> find_size_mismatch(
    const MatchedCall& matched, const GroupState& group,
    const std::function<std::string(const std::vector<int64_t>&)>& text);

// How a group is made from another group's members.
struct GroupPlan {
  Op op;                             // the function that the user called
  std::vector<int64_t> values = {};  // numbers that the other members receive as MatchedCall::sizes
  bool equal_values = false;         // all ranks must pass the same `values`
  std::string name = {};
  std::string_view base = {};                // without `name`: `base`.number; default: the parent's name
  std::string_view owner = {};               // overrides both: `owner`, or `owner`.number if that is taken
  std::optional<Milliseconds> timeout = {};  // default: the parent's
  std::optional<bool> uses_device_library = {};  // default: that of an OverrideBackend, else the parent's
};
// Makes a group. Collective over the parent. `choose` returns the members (ranks in the job) of the new group
// of which this rank gets the handle, member or not. Groups made in one call have no member in common.
Group make_group(const Group& parent, const GroupPlan& plan,
                 const std::function<std::vector<int>(const MatchedCall&)>& choose);

// The choice of the calling thread's OverrideBackend; nullopt without one.
std::optional<bool>& overridden_device_library();

// Does Group::duplicate on behalf of another function. The copy gets its owner's name, if one is given.
Group duplicate(const Group& group, Op op, std::string_view owner = {});
// Returns every member's string, in the group's order. Collective. `op` is the op of the calling function.
std::vector<std::string> gather_strings(GroupState& group, Op op, const std::string& local,
                                        std::optional<Milliseconds> timeout = {});

// Returns "0, 1, 2".
template <class T> std::string to_text(const std::vector<T>& numbers) {
  std::string text;
  for (const T& number : numbers) text += concat(text.empty() ? "" : ", ", number);
  return text;
}

}  // namespace gradus::dist::internal
