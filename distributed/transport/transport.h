// Transport: moves messages between ranks of the job. Memory rings for ranks of one host (ring_transport.h),
// gloo between hosts (gloo_transport.h), and the two together (make_hybrid_transport). Point to point,
// remote_send/recv and the collectives between hosts are built on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gradus/distributed/base/futex.h"
#include "gradus/tensor/base/ref.h"

namespace gradus::dist::internal {

// What a message belongs to. Messages of one sender, receiver and tag keep their order.
enum class Channel : uint8_t { kUser, kRemote, kCollective };
struct Tag {
  uint32_t group = 0;  // the group's id in the job
  Channel channel = Channel::kUser;
  uint32_t number = 0;  // of kUser: the user's tag
  bool operator==(const Tag&) const = default;
  uint64_t bits() const {
    return uint64_t(group) << 40 | uint64_t(channel) << 32 | number;
  }  // group below 2^24
};

inline constexpr int kAnySource = -1;
inline constexpr size_t kMaxHeaderBytes = 512;

// A message under way. Dropping the last reference before it is done is allowed after a failure only.
class Request : public Counted {
 public:
  // May move the message on; never blocks.
  // Errors: as Transport::wait.
  virtual bool done() = 0;
  virtual int source() const = 0;  // of a finished receive: the sender's rank in the job
};

// Decides where a message goes once its header is there: returns room for `bytes`. What it throws becomes the
// receive's error. It may run on any thread, with the transport's lock held: it must not call the transport.
using Accept = std::function<void*(int source, std::span<const std::byte> header, size_t bytes)>;

// Ranks are those of the job. Calls come from any thread.
class Transport {
 public:
  virtual ~Transport() = default;

  // Starts to send. The header (at most kMaxHeaderBytes) is copied; the payload must stay until the
  // request is done.
  virtual Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                            std::span<const std::byte> payload) = 0;
  // Starts to receive the next message with `tag` from `peer`, or from any rank in `sources` for kAnySource.
  virtual Ref<Request> receive(int peer, Tag tag, Accept accept, std::vector<int> sources = {}) = 0;
  // Blocks until done; moves other messages meanwhile.
  // Errors: what the job failed with, or what accept threw, with `op` before it; when a peer has left
  // with nothing more to come, PeerError after reporting; when time is over, TimeoutError after
  // reporting it (gradus/distributed/base/waiting.h).
  virtual void wait(Request& request, const Watch& watch, const char* op) = 0;
  // The rank of one of `sources` from which a message with `tag` has come that no receive is
  // for, or kAnySource.
  virtual int probe(Tag tag, const std::vector<int>& sources) = 0;
  // Sends and receives that nobody waits for make progress as well from now on (a thread of the transport's).
  virtual void progress_in_background() = 0;
};

}  // namespace gradus::dist::internal
