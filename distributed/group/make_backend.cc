// make_backend: chooses how the members of a group move data. Members on one host use an arena in shared
// memory; members on different hosts use messages; otherwise one leader per host exchanges messages for its
// host (transport/hosts.h). Every member computes the same choice from World::host_of.
#include <algorithm>

#include "gradus/distributed/group/world.h"
#include "gradus/distributed/transport/arena.h"
#include "gradus/distributed/transport/hosts.h"
#include "gradus/distributed/transport/message.h"

namespace gradus::dist::internal {
namespace {

// Added to a group's id for messages between leaders, which distinguishes them from messages of all members.
// Ids of groups stay below this number.
constexpr uint32_t kLeaderIdOffset = 1u << 28;

std::unique_ptr<Backend> make_arena(const BackendSetup& setup, const std::vector<int>& members, int index,
                                    const WaitLimits& limits) {
  // Groups with the same id have no member in common, so the first member tells them apart.
  const std::string key = concat("group/", setup.group_id, '/', members[0]);
  auto segment = setup.world.segments->open(key, members, index, arena_bytes(int(members.size())), limits);
  return make_arena_backend(std::move(segment), members, index);
}

// Returns the index of `rank` in `ranks`; -1: not found.
int index_of(int rank, const std::vector<int>& ranks) {
  const auto it = std::ranges::find(ranks, rank);
  return it == ranks.end() ? -1 : int(it - ranks.begin());
}

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendSetup& setup, const WaitLimits& limits) {
  const World& world = setup.world;
  const std::vector<int>& members = setup.members;
  if (setup.group_id >= kLeaderIdOffset) throw StateError("new_group", "too many groups: ", setup.group_id);
  std::vector<int> hosts;    // the hosts, ordered by their first member
  std::vector<int> host;     // per member: its host's index in `hosts`
  std::vector<int> leaders;  // per host: its first member
  for (int member : members) {
    const int at = index_of(world.host_of[member], hosts);
    host.push_back(at < 0 ? int(hosts.size()) : at);
    if (at >= 0) continue;
    hosts.push_back(world.host_of[member]);
    leaders.push_back(member);
  }
  if (world.shared_memory && hosts.size() == 1) return make_arena(setup, members, setup.index, limits);
  auto flat = make_message_backend(world.transport, members, setup.index, setup.group_id);
  if (!world.shared_memory || hosts.size() == members.size()) return flat;
  std::vector<int> same_host;
  for (size_t i = 0; i < members.size(); ++i)
    if (host[i] == host[setup.index]) same_host.push_back(members[i]);
  const int leader_index = index_of(world.rank, leaders);
  HostsSetup parts{.members = members, .host = host, .index = setup.index};
  parts.intra_host = make_arena(setup, same_host, index_of(world.rank, same_host), limits);
  if (leader_index >= 0)
    parts.inter_host =
        make_message_backend(world.transport, leaders, leader_index, setup.group_id + kLeaderIdOffset);
  parts.all_members = std::move(flat);
  return make_hosts_backend(std::move(parts));
}

}  // namespace gradus::dist::internal
