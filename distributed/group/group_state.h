// GroupState: one rank's side of a group. Internal: the public handle is Group.
//
// A call of the group: everyone's records are exchanged and compared, then the data moves (Note
// [Calls] in group_state.cc).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/internal/call_queue.h"
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/group/world.h"
#include "gradus/distributed/transport/backend.h"

namespace gradus::dist::internal {

// A call that all members take part in, whose records have been found to agree.
struct Turn {
  Backend& backend;
  Call call;
  std::vector<CallRecord> records;          // one per member, in the group's order
  std::vector<std::vector<int64_t>> sizes;  // what they gave as Collective::sizes
};

// What a collective gives to its group.
struct Collective {
  const char* op;  // the function's name, for errors
  CallRecord record;
  // What a record has no room for, for `check`.
  // Errors: ValueError for more than some thousand entries.
  std::vector<int64_t> sizes;
  // Returns what does not fit, from records and sizes alone, so that all ranks find the same; or nothing.
  std::function<std::optional<Failure>(const Turn&)> check;
  std::function<void(Turn&)> move;  // may be empty
  // Completes the rest when its turn has come, after the calls before it: for what is known only then. False:
  // the call is left out, which all members must find alike.
  std::function<bool(Collective&)> prepare = {};
};

class GroupState final : public Counted {
 public:
  struct Setup {
    Ref<World> world;  // null: a group of one without a job
    uint32_t id = 0;
    std::string name;
    std::vector<int> members;  // ranks in the job
    std::optional<Milliseconds> timeout;
  };
  // Collective over the members; other ranks get a state of no member.
  explicit GroupState(Setup setup);
  ~GroupState() override;

  // Checked calls.
  // Errors: ValueError when this rank is no member.
  Work run(Collective collective, bool async, std::optional<Milliseconds> timeout);

  bool is_member() const { return index_ >= 0; }
  void check_member(std::string_view op) const;
  int index() const { return index_; }
  int size() const { return int(members_.size()); }
  const std::vector<int>& members() const { return members_; }
  // The place of a rank of the job.
  // Errors: ValueError that names `what` for no member.
  int index_of(int rank, std::string_view op, std::string_view what) const;
  uint32_t id() const { return id_; }
  const std::string& name() const { return name_; }
  std::string backend_name() const;
  Milliseconds timeout() const { return timeout_; }
  World* world() const { return world_.get(); }
  Watch watch(std::optional<Milliseconds> timeout) const;

  // What the all-reduce callbacks of this group do: Note [Dropped steps] in record.h.
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

  // Passed barriers of the store: group_barrier counts them, so that it can be repeated.
  std::atomic<int64_t> passed_barriers{0};
  // Given to messages of remote_send.
  std::atomic<uint32_t> last_remote_id{0};

 private:
  void execute(Collective& collective, const Watch& watch);
  void agree(Turn& turn, const Collective& collective) const;
  [[noreturn]] void fail(const Turn& turn, const Failure& failure) const;

  const Ref<World> world_;
  const uint32_t id_;
  const std::string name_;
  const std::vector<int> members_;
  const Milliseconds timeout_;
  int index_ = -1;
  std::unique_ptr<Backend> backend_;
  std::atomic<uint32_t> backwards_{0};
  std::atomic<uint8_t> dropped_{0};  // as in CallRecord
  uint64_t calls_ = 0;               // that were not left out; of the one that runs
  CallQueue queue_;                  // last: its calls use the rest
};

// Returns what is wrong unless all members gave equal sizes; `text` shows them.
std::optional<Failure> find_odd(const Turn& turn, const GroupState& group,
                                const std::function<std::string(const std::vector<int64_t>&)>& text);

// How a group is made of another one's members.
struct GroupPlan {
  Op op;                           // the function that the user called
  std::vector<int64_t> says = {};  // to the other ranks
  bool equal = false;              // all ranks must say the same
  std::string name = {};
  std::string_view base = {};   // of a name that ends with the group's number; default: the parent's
  std::string_view owner = {};  // the name itself, if it is the first group of this name
  std::optional<Milliseconds> timeout = {};
};
// Collective over the parent. `choose` says which ranks are the members of the new group that this rank
// makes, or that it only knows of; groups made in one call have no member in common.
Group make_group(const Group& parent, const GroupPlan& plan,
                 const std::function<std::vector<int>(const Turn&)>& choose);

// Group::duplicate on behalf of another function, under the name of who owns the copy if one is given.
Group duplicate(const Group& group, Op op, std::string_view owner = {});
// Collective: returns every member's string, in the group's order. `op` says for whom.
std::vector<std::string> gather_strings(GroupState& group, Op op, const std::string& mine,
                                        std::optional<Milliseconds> timeout = {});

// "0, 1, 2", of int or int64_t.
template <class T>
std::string to_text(const std::vector<T>& numbers);

}  // namespace gradus::dist::internal
