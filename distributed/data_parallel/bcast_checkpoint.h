// bcast_checkpoint: loads a checkpoint on one rank and broadcasts it to all ranks of a group, so only that
// rank needs the file. Names, numbers and strings are sent in one message, then the elements of the tensors.
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
  Group group = {};  // default: all ranks
  int src = -1;      // the loading rank, as a rank in the job; -1: the group's first
};

// Calls `load` on rank src only, in the calling thread, and returns the result of `load` on all ranks. Ranks
// other than src get new tensors in host memory, and bytes_read 0. Collective over the group.
// Errors: ValueError if src is not in the group. If `load` throws, all ranks throw the same exception; on
// ranks other than src an exception that is no ShapeError, DTypeError, DeviceError, IndexError, ValueError,
// StateError or FileError becomes a PeerError with its text. The group remains usable.
io::LoadedCheckpoint bcast_checkpoint(const std::function<io::LoadedCheckpoint()>& load,
                                      const BcastCheckpointOptions& options = {});
// The same with io::load_checkpoint(path) as `load`. The path is used on rank src only.
io::LoadedCheckpoint bcast_checkpoint(const std::filesystem::path& path,
                                      const BcastCheckpointOptions& options = {});

}  // namespace gradus::dist
