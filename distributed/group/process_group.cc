// The functions of torch.distributed's process groups: init and destroy, ranks and sizes, and new groups. The
// current World (this rank's state of the job) is one per process, or one per Context for ranks that are
// threads. Without a job, every function sees a group of one rank.
#include "gradus/distributed/group/process_group.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include "gradus/distributed/base/crash_handler.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/join_job.h"
#include "gradus/distributed/group/internal/message_work.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist {

using internal::GroupState;
using internal::MatchedCall;
using internal::Op;
using internal::World;

namespace {

// Sets this rank's number of threads, unless it is set. torchrun and gradus-run set it by OMP_NUM_THREADS.
void share_cores(const World& world) {
  if (!std::getenv("OMP_NUM_THREADS") && Context::current().threads == 0) set_num_threads(world.threads);
}

}  // namespace

void init_process_group(const InitOptions& options) {
  if (World::current())
    throw StateError("init_process_group",
                     "this rank is in a job already: call it once, or destroy_process_group first");
  internal::install_crash_handler();
  World::exchange_process_world(internal::join_job(options));
  internal::install_exit_hooks();
  share_cores(*World::current());
}

// Waits for posted calls and messages, then leaves; the rank that hosts the store waits for all ranks.
void destroy_process_group() {
  Context& context = Context::current();
  Ref<World> world;
  if (context.job) {
    world = Ref<World>(World::current());
    context.job = nullptr;
  } else {
    world = World::exchange_process_world(nullptr);
  }
  if (!world) return;
  if (!world->membership->is_rank()) {  // a forked child: the world is the parent's, so nothing is closed
    gradus::internal::abandon(std::move(world));
    return;
  }
  try {
    internal::finish_messages(*world);
  } catch (const DistributedError&) {
    // Errors of the calls do not matter here: code that needs a result has waited for it.
  }
  world->finish_calls();
  world->default_group = nullptr;  // since it holds the world
  internal::leave_job(*world);
}

bool is_initialized() { return World::current() != nullptr; }
bool is_available() { return true; }

const Group WORLD;
Group world() { return Group(Ref<GroupState>(&Group().state())); }
int get_rank(const Group& group) { return group.is_default() ? Job::current()->rank : group.rank(); }
int get_world_size(const Group& group) {
  return group.is_default() ? Job::current()->size : group.is_member() ? group.size() : -1;
}
int get_local_rank() { return Job::current()->local_rank; }
int get_local_world_size() { return Job::current()->local_size; }
int get_node_rank() {
  const World* world = World::current();
  if (!world) return 0;
  const std::set<int> hosts(world->host_of.begin(), world->host_of.end());
  return int(std::distance(hosts.begin(), hosts.find(world->host_of[world->rank])));
}
Device get_device() {
  const int count = cuda_device_count();
  return count > 0 ? Device(DeviceType::kCUDA, int16_t(get_local_rank() % count)) : kCPU;
}
std::string get_backend(const Group& group) { return group.backend(); }

int get_group_rank(const Group& group, int global_rank) {
  return group.state().index_of(global_rank, "get_group_rank", "global_rank");
}
int get_global_rank(const Group& group, int group_rank) {
  const std::vector<int>& ranks = group.ranks();
  if (group_rank < 0 || group_rank >= int(ranks.size()))
    throw ValueError("get_global_rank", "group_rank ", group_rank, " is outside of group '", group.name(),
                     "' of ", ranks.size(), " ranks");
  return ranks[group_rank];
}
std::vector<int> get_process_group_ranks(const Group& group) { return group.ranks(); }

bool is_launched() { return std::getenv("GRADUS_JOB_ID") || std::getenv("TORCHELASTIC_RUN_ID"); }

namespace {

// Errors: ValueError for an empty list, a rank outside of the job, or a rank in two places.
void check_ranks(const char* op, const std::vector<std::vector<int>>& lists) {
  std::vector<char> seen(get_world_size());
  for (const std::vector<int>& ranks : lists) {
    if (ranks.empty()) throw ValueError(op, "a group needs at least one rank");
    for (int rank : ranks) {
      if (rank < 0 || rank >= int(seen.size()))
        throw ValueError(op, "rank ", rank, " is outside of the job of ", seen.size(), " ranks");
      if (std::exchange(seen[rank], 1)) throw ValueError(op, "rank ", rank, " is named twice");
    }
  }
}

// Makes one group per list. Returns this rank's group. A rank in no list gets a handle without membership: of
// the group if there is one list, else of no ranks.
Group make_groups(Op op, const std::vector<std::vector<int>>& lists, const NewGroupOptions& options) {
  check_ranks(name_of(op).data(), lists);
  std::vector<int64_t> values;
  for (const std::vector<int>& ranks : lists) {
    values.insert(values.end(), ranks.begin(), ranks.end());
    if (lists.size() > 1) values.push_back(-1);  // ends a list
  }
  std::optional<bool> uses_device_library;
  if (!options.backend.empty()) uses_device_library = internal::uses_nccl(name_of(op), options.backend);
  const int rank = get_rank();
  const auto local = std::ranges::find_if(
      lists, [&](const std::vector<int>& ranks) { return std::ranges::find(ranks, rank) != ranks.end(); });
  const std::vector<int> members = local != lists.end() ? *local
                                   : lists.size() == 1  ? lists[0]
                                                        : std::vector<int>();
  return internal::make_group({},
                              {.op = op,
                               .values = values,
                               .equal_values = true,
                               .name = options.name,
                               .timeout = options.timeout,
                               .uses_device_library = uses_device_library},
                              [&](const MatchedCall&) { return members; });
}

}  // namespace

Group new_group(const std::vector<int>& ranks, const NewGroupOptions& options) {
  return make_groups(Op::kNewGroup, {ranks}, options);
}

Group new_subgroups(int size, const NewGroupOptions& options) {
  const int total = get_world_size();
  if (size < 1 || total % size)
    throw ValueError("new_subgroups", "the job's ", total, " ranks cannot be cut into groups of ", size);
  std::vector<std::vector<int>> lists;
  for (int first = 0; first < total; first += size) {
    lists.emplace_back(size);
    std::iota(lists.back().begin(), lists.back().end(), first);
  }
  return make_groups(Op::kNewSubgroups, lists, options);
}

Group new_subgroups_by_enumeration(const std::vector<std::vector<int>>& ranks_per_group,
                                   const NewGroupOptions& options) {
  return make_groups(Op::kNewSubgroupsByEnumeration, ranks_per_group, options);
}

Group get_local_group() { return world().split(get_node_rank()); }

OverrideBackend::OverrideBackend(const std::string& backend)
    : previous_(std::exchange(internal::overridden_device_library(),
                              internal::uses_nccl("override_backend", backend))) {}
OverrideBackend::~OverrideBackend() { internal::overridden_device_library() = previous_; }

}  // namespace gradus::dist
