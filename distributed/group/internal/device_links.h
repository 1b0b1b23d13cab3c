// DeviceLinks: how one group moves data between its members' GPUs: by the program's DeviceLibrary (NCCL) where all
// members have it and a GPU of their own, else through host memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/base/call_record.h"
#include "gradus/distributed/group/internal/device_calls.h"
#include "gradus/distributed/transport/device_collectives.h"

namespace gradus::dist::internal {

class World;

class DeviceLinks {
 public:
  struct Link {
    Device device;                                  // this member's GPU
    bool has_library = false;                       // whether the library can connect the members
    std::shared_ptr<DeviceCollectives> by_library;  // null: not connected yet
    std::shared_ptr<DeviceCollectives> by_host;     // through host memory; in a group of one, copies

    // Whether a call of this record goes by the library; the same on all members.
    bool uses_library(const CallRecord& record) const;
  };

  // `world` and `host` must outlive the object; without a world the group has one member. `index`: this member's.
  // `wants_library`: false: the group's data goes through host memory.
  DeviceLinks(World* world, Backend& host, int index, bool wants_library)
      : world_(world), host_(host), index_(index), wants_library_(wants_library) {}
  // Hands connections over to `calls`, which closes them.
  void retire(DeviceCalls& calls);

  // Returns the link of the GPUs that the members' records name. In the first call for these GPUs the members agree on
  // the way. Collective. Errors: the job's failure.
  Link& get(const Call& call, const std::vector<CallRecord>& records);
  // Sets link.by_library, in the first call that uses it. Collective. Errors: the job's failure; DeviceError.
  void connect(const Call& call, Link& link, int size);

 private:
  // Returns "" if the library can connect the members, else why not; the same on all members.
  std::string agree_on_obstacle(const Call& call, int device);

  World* const world_;
  Backend& host_;
  const int index_;
  const bool wants_library_;
  std::map<std::vector<int>, Link> links_;  // by the members' device numbers
};

}  // namespace gradus::dist::internal
