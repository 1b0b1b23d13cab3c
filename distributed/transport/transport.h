// Transport: tagged messages between ranks of the job, as MPI's Isend and Irecv. StreamTransport implements
// this interface. send and recv, remote_send and remote_recv, Mailbox and MessageBackend use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "gradus/distributed/health/futex.h"
#include "gradus/tensor/base/ref.h"

namespace gradus::dist::internal {

// A receive matches messages with its tag. Messages of one sender, receiver and tag keep their order.
// Channel: send and recv; remote_send and remote_recv; MessageBackend; the Mailbox of pipelines; the receiver's answer to
// a DeviceOffer and what the sender then sends (group/internal/device_messages.h).
enum class Channel : uint8_t { kUser, kRemote, kCollective, kMailbox, kAnswer, kConclusion };
struct Tag {
  uint32_t group = 0;  // the group's id in the job, below 2^29
  Channel channel = Channel::kUser;
  uint32_t number = 0;  // of kUser: the user's tag
  bool operator==(const Tag&) const = default;
  uint64_t bits() const { return uint64_t(group) << 35 | uint64_t(channel) << 32 | number; }
};

inline constexpr int kAnySource = -1;
inline constexpr size_t kMaxHeaderBytes = 512;

// A started send or receive. The last reference may be dropped before done() only after a failure.
class Request : public Counted {
 public:
  // Returns whether the send or receive is complete. May make progress; never blocks.
  // Errors: as for Transport::wait.
  virtual bool done() = 0;
  virtual int source() const = 0;  // of a finished receive: the sender's rank in the job
};

// Called once per receive, when the header of its message has arrived. Returns memory for the payload of
// `bytes` bytes, valid until the request is complete. An exception becomes the receive's error. The function
// may run on any thread with the transport's lock held, so it must not call the transport.
using ProvideBuffer = std::function<void*(int source, std::span<const std::byte> header, size_t bytes)>;

// Ranks are ranks in the job, other than this one. Any thread may call.
class Transport {
 public:
  virtual ~Transport() = default;

  // Starts to send to rank `peer`. The header (at most kMaxHeaderBytes) is copied. The payload must stay
  // valid until the request is complete.
  virtual Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                            std::span<const std::byte> payload) = 0;
  // Starts to receive the next message with `tag` from `peer`; for kAnySource from any of `sources` (empty:
  // any rank).
  virtual Ref<Request> receive(int peer, Tag tag, ProvideBuffer provide_buffer,
                               std::vector<int> sources = {}) = 0;
  // Blocks until the request is complete; makes progress with other messages meanwhile.
  // Errors: the job's failure, with `op` before the text; the exception of `provide_buffer`; PeerError if the
  // peer has left, TimeoutError if the deadline passes, both after reporting it to the job
  // (gradus/distributed/health/waiting.h).
  virtual void wait(Request& request, const WaitLimits& watch, const char* op) = 0;
  // Starts a thread, if needed. From now on sends and receives make progress even if nobody waits for them.
  virtual void progress_in_background() = 0;
};

}  // namespace gradus::dist::internal
