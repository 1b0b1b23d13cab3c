// Collectives: the collectives of one group on contiguous buffers. All members make the same calls, one at a time and in
// the same order. The callers have checked that sizes, dtypes and ops agree.
//
//   Backend                         buffers in host memory
//     ArenaBackend (arena.h)          all members share memory: `local`, and `gloo` on one host
//     MessageBackend (message.h)      messages over a Transport: any members
//     HostsBackend (hosts.h)          several hosts: shared memory within a host, messages between hosts
//   DeviceCollectives               buffers in memory of GPUs: device_collectives.h
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/base/reduce_op.h"
#include "gradus/distributed/health/futex.h"

namespace gradus::dist::internal {

// Memory that a call reads or writes. Lists have one block per member, in the group's order; blocks may
// differ in size and may be empty.
struct Block {
  void* data = nullptr;
  size_t bytes = 0;
};
struct ConstBlock {
  const void* data = nullptr;
  size_t bytes = 0;
};

// What a call needs besides its data: the name in errors; the job's membership and the deadline of all waits.
struct Call {
  const char* op = "";
  WaitLimits watch;
};

inline constexpr size_t kMaxExchangeBytes = 8192;

// Members and `root` are indices in the group. n counts elements, and is equal on all members.
// Errors: the job's failure (PeerError, TimeoutError, MismatchError), after reporting it.
class Collectives {
 public:
  virtual ~Collectives() = default;

  // Sets out[i] to the reduction over members of in[i]. in == out is allowed. The order of reduction depends
  // only on the members, their hosts and n, so the result is the same bits on every member and in every run.
  virtual void all_reduce(const Call& call, const void* in, void* out, int64_t n, DType dtype,
                          ReduceOp op) = 0;
  // The same with the result on member `root` only; other members' out is not used and may be null.
  virtual void reduce(const Call& call, int root, const void* in, void* out, int64_t n, DType dtype,
                      ReduceOp op) = 0;
  // Sets member i's out to the reduction over members of blocks[i]. out has the size of blocks[own index].
  virtual void reduce_scatter(const Call& call, std::span<const ConstBlock> blocks, void* out, DType dtype,
                              ReduceOp op) = 0;
  // Overwrites data with that of member `root`.
  virtual void broadcast(const Call& call, int root, void* data, size_t bytes) = 0;
  // Sets out[i] to member i's `in`, of equal size, on every member. in may be out[own index].
  virtual void all_gather(const Call& call, ConstBlock in, std::span<const Block> out) = 0;
  // Sends in[j] to member j, and receives out[j], of equal size, from member j. Also gather and scatter,
  // where all blocks to or from members other than the root are empty.
  virtual void exchange_blocks(const Call& call, std::span<const ConstBlock> in,
                               std::span<const Block> out) = 0;
};

// Functions return when this member's part is done and its buffers are no longer used; after an error, messages may
// still use them for a while.
class Backend : public Collectives {
 public:
  // Returns all members' `local`, in the group's order. Each has at most kMaxExchangeBytes. Also a barrier.
  virtual std::vector<std::string> exchange(const Call& call, std::string_view local) = 0;
};

}  // namespace gradus::dist::internal
