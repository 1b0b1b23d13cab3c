// bcast_checkpoint: a checkpoint that one rank can read, on all ranks.
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

// Calls `load` on rank src, and returns on all ranks what it returned there; tensors are in host memory.
// Nothing is loaded elsewhere.
// Errors: what `load` throws there, on all ranks; one that is not of tensor/base/error.h is a PeerError on
// the others. The group can be used afterward.
io::LoadedCheckpoint bcast_checkpoint(const std::function<io::LoadedCheckpoint()>& load,
                                      const BcastCheckpointOptions& options = {});
// With io::load_checkpoint(path).
io::LoadedCheckpoint bcast_checkpoint(const std::filesystem::path& path,
                                      const BcastCheckpointOptions& options = {});

}  // namespace gradus::dist
