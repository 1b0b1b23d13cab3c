// World: what all groups of one rank share: its position in the job, store, membership, message transport,
// and calls in progress. Internal: the public handle of a group is Group.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/base/store.h"
#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/internal/call_queue.h"
#include "gradus/distributed/group/internal/device_calls.h"
#include "gradus/distributed/group/internal/device_messages.h"
#include "gradus/distributed/group/internal/issue_order.h"
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/health/membership.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/distributed/transport/segment.h"
#include "gradus/distributed/transport/transport.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus::dist::internal {

// The last 256 collectives of a rank, for the text of timeouts. Thread-safe.
class CallLog {
 public:
  void add(const CallRecord& record, const std::string& group);
  // Returns one line per call, newest first, at most 16; equal calls in a row share a line; "" without calls.
  std::string text() const;

 private:
  struct Entry {
    CallRecord record;
    std::string group;
  };
  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // newest first
};

// A job of several ranks. A rank that is a thread has its World in its Context; a process has one World.
// Every Job is a World, except the Job of a process without other ranks.
class World : public Job {
 public:
  std::string backend;  // "local", "gloo"
  Milliseconds timeout{600'000};
  std::vector<int> host_of;         // per rank: its host; hosts are numbered by their first rank
  int threads = 1;                  // this rank's share of its host's cores
  bool uses_device_library = true;  // false: collectives between GPUs go through host memory
  bool shared_memory = true;        // false: collectives exchange messages even within a host
  std::shared_ptr<Store> store;     // waits in it end with the job's failure
  std::shared_ptr<Membership> membership;
  std::shared_ptr<SegmentProvider> segments;  // shared memory; may be null in a job of one rank
  std::shared_ptr<Transport> transport;       // messages; may be null in a job of one rank
  std::shared_ptr<void> hosted_store_server;  // the store's server, on rank 0 of a job without a launcher
  // Set for a job that is found by its port alone: until this time, ranks of two jobs may have met at that
  // port. If two processes join as one rank before this time, both jobs fail. Default value: not set.
  TimePoint collision_check_end{};
  // The greatest number of a group that this rank has proposed, or that its groups have: see make_group().
  std::atomic<uint32_t> last_group_number{0};
  Ref<GroupState> default_group;  // null before the job is joined and after it is left
  CallLog calls;                  // this rank's calls in all groups
  const std::shared_ptr<PostedCalls> posted = std::make_shared<PostedCalls>();
  IssueOrder issue_order;
  // Made by the first call.
  DeviceCalls& device_calls();
  const std::shared_ptr<DeviceMessages>& device_messages();
  // Waits until the connections of groups that are gone are closed, for at most 0.5 s: what this rank has sent by them
  // may be under way.
  void finish_closing();
  // Returns the stream of the collectives of all groups on a GPU.
  Stream stream_of(Device device);
  std::mutex messages_mutex;
  std::vector<Ref<WorkState>> messages;  // detached messages in progress (MessageWork::detach)

  // Returns the limits of a wait: the job's failure, and `limit` (default: `timeout`) from now.
  WaitLimits wait_limits(std::optional<Milliseconds> limit = {}) const {
    return {membership.get(), Deadline::after(limit.value_or(timeout))};
  }
  ~World() override;

  // Waits until `collision_check_end`. Called before ranks exchange anything.
  // Errors: the job's failure.
  void wait_for_collision_check(std::string_view op) const;

  // Waits until this rank's posted (asynchronous) calls have ended, before the rank leaves. They end by their
  // deadlines; after a failure of the job the wait ends within 5 s. Stops early if other ranks wait for this
  // rank in a call that it has not posted: only its exit ends their waits.
  void finish_calls();

  // Returns `owner` as the name of a group, or "owner.number" if an earlier group has that name.
  std::string name_for(std::string_view owner, uint32_t number);

  // One copy of read-only memory per host: see share_on_host (internal/host_copy.h).
  HostMemory share(const std::string& key, size_t bytes, const Fill& fill) override;
  // In the n-th call for `what`, returns the `value` of the rank that made its n-th call first.
  std::string value_of_first_caller(const std::string& what, const std::string& value) override;

  // Returns the calling thread's world: its Context's, else the process's, or null.
  static World* current();
  // Returns the process's world, on any thread.
  static Ref<World> process_world();
  // Makes `world` (null: none) the process's world. Returns the one before.
  static Ref<World> exchange_process_world(Ref<World> world);

 private:
  // Counts the calls of value_of_first_caller, to form their keys in the store. One count for all of a
  // process's jobs, since two jobs may find the same store.
  struct Calls {
    std::mutex mutex;
    std::map<std::string, int> counts;  // per `what`
  };
  Calls calls_of_thread_;
  std::mutex streams_mutex_;
  std::map<int, Stream> streams_;  // by device number
  std::once_flag device_calls_made_;
  std::unique_ptr<DeviceCalls> device_calls_;
  std::mutex owners_mutex_;
  std::set<std::string, std::less<>> owners_;
  std::once_flag device_messages_made_;
  std::shared_ptr<DeviceMessages> device_messages_;
};

// Returns whether collectives between GPUs use NCCL with this InitOptions::backend.
// Errors: ValueError naming `op` for an unknown backend.
bool uses_nccl(std::string_view op, std::string_view backend);

// What a backend is made from. `index` is the position of this rank in `members`.
struct BackendSetup {
  World& world;
  std::vector<int> members;  // ranks in the job
  int index;
  uint32_t group_id;  // equal on all members; no two groups of a rank have the same id
};
// Makes the backend for these members. It uses shared memory if all are on one host (and World::shared_memory
// allows it), messages if no two share a host, and both otherwise. Collective over the members.
// Errors: StateError for a group_id of 2^28 or more; those of waits for the other members.
std::unique_ptr<Backend> make_backend(const BackendSetup& setup, const WaitLimits& limits);

}  // namespace gradus::dist::internal
