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

// Calls `load` on rank src, and returns its result on all ranks. Tensors are in host memory. Other ranks do
// not call `load`.
// Errors: what `load` throws, on all ranks; on ranks other than src, an exception that is not of
// tensor/base/error.h becomes a PeerError. The group can be used afterward.
io::LoadedCheckpoint bcast_checkpoint(const std::function<io::LoadedCheckpoint()>& load,
                                      const BcastCheckpointOptions& options = {});
// Does the same with io::load_checkpoint(path).
io::LoadedCheckpoint bcast_checkpoint(const std::filesystem::path& path,
                                      const BcastCheckpointOptions& options = {});

}  // namespace gradus::dist
