// World: what all groups of one rank share. Internal: the public handle of a group is Group.
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
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/health/membership.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/distributed/transport/segment.h"
#include "gradus/distributed/transport/transport.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus::dist::internal {

// The last collectives of a rank, for the text of timeouts.
class CallLog {
 public:
  void add(const CallRecord& record, const std::string& group);
  // Returns one line per call, newest first; equal calls in a row share a line. "" without calls.
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
  std::vector<int> host_of;  // per rank: its host; hosts are numbered by their first rank
  int threads = 1;           // this rank's share of its host's cores
  bool shared_memory = true;
  std::shared_ptr<Store> store;  // waits in it end with the job's failure
  std::shared_ptr<Membership> membership;
  std::shared_ptr<SegmentProvider> segments;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<void> hosted;  // the store's server, on rank 0 of a job without a launcher
  // Until this time its ranks may be those of two jobs.
  TimePoint settled{};
  std::atomic<uint32_t> last_group_id{0};
  Ref<GroupState> default_group;
  CallLog calls;  // this rank's calls in all groups
  const std::shared_ptr<PostedCalls> posted = std::make_shared<PostedCalls>();
  std::mutex messages_mutex;
  std::vector<Ref<WorkState>> messages;  // under way; nothing has to wait for them

  Watch watch(std::optional<Milliseconds> limit = {}) const {
    return {membership.get(), Deadline::after(limit.value_or(timeout))};
  }
  ~World() override;

  // Waits until the ranks are known to be of one job. Comes before everything that ranks exchange.
  // Errors: the job's failure.
  void settle(std::string_view op) const;

  // Waits until this rank's posted calls have ended, before the rank leaves. They end by their deadlines, or
  // soon after the job has failed. Stops early if other ranks wait for this rank elsewhere, since they must
  // hear that it leaves.
  void finish_calls();

  // Returns the owner's name; if an earlier group has that name, with the group's number.
  std::string name_for(std::string_view owner, uint32_t id);

  HostMemory share(const std::string& key, size_t bytes, const Fill& fill) override;
  std::string first_value(const std::string& what, const std::string& value) override;

  // Returns the calling thread's world: its Context's, else the process's, or null.
  static World* current();
  // Returns the process's world, on any thread.
  static Ref<World> process_world();
  // Makes `world` (null: none) the process's world. Returns the one before.
  static Ref<World> exchange_process_world(Ref<World> world);

 private:
  // The calls of first_value. The count goes on when a process joins one job after another, since it may find
  // the same store again.
  struct Calls {
    std::mutex mutex;
    std::map<std::string, int> counts;  // per `what`
  };
  Calls calls_of_thread_;
  std::mutex owners_mutex_;
  std::set<std::string, std::less<>> owners_;
};

// What a backend is made from. `index` is this rank's place in `members`.
struct BackendSetup {
  World& world;
  std::vector<int> members;  // ranks in the job
  int index;
  uint32_t group_id;  // the same on all members, unique for each pair of ranks
};
// Makes the backend for these members. It uses shared memory if all are on one host (and World::shared_memory
// allows it), messages if no two share a host, and both otherwise. Collective over the members.
std::unique_ptr<Backend> make_backend(const BackendSetup& setup, const Watch& watch);

}  // namespace gradus::dist::internal
