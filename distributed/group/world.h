// World: what all groups of one rank share; GroupState: one group of it. Internal: the public
// handle is Group.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/base/membership.h"
#include "gradus/distributed/base/store.h"
#include "gradus/distributed/group/group.h"
#include "gradus/distributed/group/internal/call_log.h"
#include "gradus/distributed/group/internal/call_queue.h"
#include "gradus/distributed/group/work_state.h"
#include "gradus/distributed/transport/backend.h"
#include "gradus/distributed/transport/segment.h"
#include "gradus/distributed/transport/transport.h"
#include "gradus/tensor/runtime/job.h"

namespace gradus::dist::internal {

// A job of several ranks. Ranks as threads have one each (in their Context), a process has one. There is no
// other kind of Job but the group of one's.
class World : public Job {
 public:
  std::string backend;  // "local", "gloo"
  Milliseconds timeout{600'000};
  std::vector<int> host_of;  // per rank: the number of its host, counted by first rank
  int threads = 1;           // this rank's part of its host's cores
  bool shared_memory = true;
  std::shared_ptr<Store> store;  // waits in it end with the job's failure
  std::shared_ptr<Membership> membership;
  std::shared_ptr<SegmentProvider> segments;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<void> hosted;  // the store's server, on rank 0 of a job without a launcher
  // Until then its ranks may be those of two jobs.
  TimePoint settled{};
  std::atomic<uint32_t> last_group_id{0};
  Ref<GroupState> default_group;
  CallLog calls;  // of this rank in all groups
  const std::shared_ptr<PostedCalls> posted = std::make_shared<PostedCalls>();
  std::mutex messages_mutex;
  std::vector<Ref<WorkState>> messages;  // that are under way without anyone who must wait for them

  Watch watch(std::optional<Milliseconds> limit = {}) const {
    return {membership.get(), Deadline::after(limit.value_or(timeout))};
  }
  ~World() override;

  // Comes before all that ranks exchange: waits until they are known to be of one job.
  // Errors: the job's failure.
  void settle(std::string_view op) const;

  // Of a rank that leaves: waits until its posted calls have ended, which they do by their deadlines, or soon
  // after the job has failed. Or until others wait for it elsewhere: they must hear that it leaves.
  void finish_calls();

  // The owner's name; with the group's number where an earlier group has that name.
  std::string name_for(std::string_view owner, uint32_t id);

  HostMemory share(const std::string& key, size_t bytes, const Fill& fill) override;
  std::string first_given(const std::string& what, const std::string& value) override;

  // The calling thread's world (its Context's, else the process's), or null.
  static World* current();
  // The process's, whatever the thread.
  static Ref<World> process_world();
  // Makes `world` (null: none) the process's, and returns what was.
  static Ref<World> exchange_process_world(Ref<World> world);

 private:
  // Calls of first_given. A process that joins one job after another may find the same store
  // again: it counts on.
  struct Calls {
    std::mutex mutex;
    std::map<std::string, int> counts;  // per `what`
  };
  Calls calls_of_thread_;
  std::mutex owners_mutex_;
  std::set<std::string, std::less<>> owners_;
};

// What a backend is built from. `index` is this rank's place in `members`.
struct BackendSetup {
  World& world;
  std::vector<int> members;  // ranks in the job
  int index;
  uint32_t group_id;  // the same on all members, unique for each pair of ranks
};
// The backend for these members: shared memory when all are on one host (and it is allowed), messages when
// none share a host, both otherwise. Collective over the members.
std::unique_ptr<Backend> make_backend(const BackendSetup& setup, const Watch& watch);

}  // namespace gradus::dist::internal
