// Transport: moves messages between ranks of the job. stream_transport.h implements it; tests wrap it.
// Point-to-point messages, remote_send, remote_recv and the collectives between hosts are built on it.
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

// What a message belongs to. Messages of one sender, receiver and tag keep their order.
enum class Channel : uint8_t { kUser, kRemote, kCollective, kMailbox };
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

// A message under way. The last reference may be dropped before it is done only after a failure.
class Request : public Counted {
 public:
  // Returns whether it is done. May move the message on; never blocks.
  // Errors: as for Transport::wait.
  virtual bool done() = 0;
  virtual int source() const = 0;  // of a finished receive: the sender's rank in the job
};

// Decides where a message goes, once its header is there: returns room for `bytes`. An exception from it
// becomes the receive's error. It may run on any thread with the transport's lock held, so it must not
// call the transport.
using ProvideBuffer = std::function<void*(int source, std::span<const std::byte> header, size_t bytes)>;

// Ranks are ranks in the job. Any thread may call.
class Transport {
 public:
  virtual ~Transport() = default;

  // Starts to send. The header (at most kMaxHeaderBytes) is copied. The payload must stay valid until the
  // request is done.
  virtual Ref<Request> send(int peer, Tag tag, std::span<const std::byte> header,
                            std::span<const std::byte> payload) = 0;
  // Starts to receive the next message with `tag` from `peer`, or from any rank in `sources` for kAnySource.
  virtual Ref<Request> receive(int peer, Tag tag, ProvideBuffer provide_buffer,
                               std::vector<int> sources = {}) = 0;
  // Blocks until done; moves other messages meanwhile.
  // Errors: the job's failure, with `op` before it; what `provide_buffer` threw; PeerError, after reporting
  // it, if the peer has left and nothing more can come; TimeoutError, after reporting it, if time
  // is over (gradus/distributed/health/waiting.h).
  virtual void wait(Request& request, const Watch& watch, const char* op) = 0;
  // Starts a thread, if needed. From now on sends and receives make progress even if nobody waits for them.
  virtual void progress_in_background() = 0;
};

}  // namespace gradus::dist::internal
