// bcast_checkpoint: loads a checkpoint on one rank and sends it to all ranks.
//
//   io::LoadedCheckpoint loaded = dist::bcast_checkpoint("runs/last.ckpt");
//   net.load_state_dict(loaded.checkpoint.tensors("model"));
#pragma once

#include <filesystem>
#include <functional>

#include "gradus/distributed/group/group.h"
#include "gradus/io/checkpoint.h"

namespace gradus::dist {

struct BcastCheckpointOptions {
  Group group = {};
  int src = -1;  // rank in the job; -1: the group's first
};

// Calls `load` on rank src only, and returns its result on all ranks. Tensors are in host memory.
// Errors: all ranks throw the exception of `load`. Exceptions other than those of tensor/base/error.h become
// a PeerError on ranks other than src. The group stays usable after an error.
io::LoadedCheckpoint bcast_checkpoint(const std::function<io::LoadedCheckpoint()>& load,
                                      const BcastCheckpointOptions& options = {});
// Loads with io::load_checkpoint(path).
io::LoadedCheckpoint bcast_checkpoint(const std::filesystem::path& path,
                                      const BcastCheckpointOptions& options = {});

}  // namespace gradus::dist
