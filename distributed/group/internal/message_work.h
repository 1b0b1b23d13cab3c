// Messages between two ranks, for send, recv and their object forms.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/transport/transport.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Precedes the payload.
struct MessageHeader {
  enum class Kind : uint8_t { kTensor, kObject, kNone } kind = Kind::kTensor;
  DType dtype = DType::kU8;
  int32_t ndim = 0;
  int64_t dims[kMaxDims] = {};
  // For remote_send: Note [Remote messages] in remote.cc.
  uint8_t channels_last = 0;
  uint32_t open = 0;   // how many recordings the sender has open
  uint32_t id = 0;     // the answer's id for the first recording that wants one
  uint64_t wants = 0;  // bit i: the i-th open recording wants an answer
  // For a Mailbox, which says what they mean.
  uint64_t step = 0;
  uint64_t program = 0;
  uint64_t generator[2] = {};
  int32_t parcels = 0;
  uint8_t wants_gradient = 0;
};
std::string describe(const MessageHeader& header);  // "f32[4,8]", "an object"
// Returns the header of a message with x, which must be row-major or channels-last. An undefined x is "none".
MessageHeader header_of(const Tensor& x);
// Returns room for the tensor that a header announces; undefined for "none".
// Errors: MismatchError if rank `source` announced something else than the message's `bytes`.
Tensor room_for(const char* op, int source, const MessageHeader& header, size_t bytes, Device device);

// Returns where the payload goes.
// Errors: MismatchError, which both ranks get.
using TakeMessage = std::function<void*(int source, const MessageHeader& header, size_t bytes)>;

struct Message {
  const char* op;
  GroupState& group;
  int peer;  // rank in the job, or kAnyRank
  uint32_t tag;
  std::optional<Milliseconds> timeout;
  Channel channel = Channel::kUser;
};

// Returns a message's description, after checking it.
// Errors: ValueError if this rank or the peer is no member, or they are the same rank.
Message make_message(const char* op, const Group& group, int peer, const char* what, uint32_t tag,
                     std::optional<Milliseconds> timeout);

// A message under way.
class MessageWork final : public WorkState {
 public:
  // Sends x, dense or undefined. The message keeps x alive.
  static Ref<MessageWork> send(const Message& message, const MessageHeader& header, const Tensor& x);
  // The caller keeps the payload alive.
  static Ref<MessageWork> send(const Message& message, const MessageHeader& header,
                               std::span<const std::byte> payload, const Tensor& keep = {});
  // Writes to `keep`, which may be undefined, and keeps it alive.
  static Ref<MessageWork> receive(const Message& message, TakeMessage take, const Tensor& keep);

  ~MessageWork() override;

  void wait(std::optional<Milliseconds> timeout) override;
  // Waits as if the message had been started now: `timeout` (default: the group's) counts from here. Other
  // ranks read `doing` if they ask what this rank does.
  void wait_from_now(const std::string& doing, std::optional<Milliseconds> timeout = {});
  bool is_completed() override;
  int source_rank() override;
  bool receives() const { return receives_; }
  // From now on the message makes progress even if nobody waits for it. It is kept until it is done, even if
  // no Work refers to it.
  void detach(World& world);

 private:
  MessageWork(const Message& message, const Tensor& keep, bool receives);
  void written();
  void wait_until_deadline();

  const char* const op_;
  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<Transport> transport_;
  const Milliseconds timeout_;
  Deadline deadline_;
  const int peer_;
  std::string doing_;
  const Tensor tensor_;
  const bool receives_;
  std::atomic<bool> written_{false};
  Ref<Request> request_;
};

// Waits for the messages that this rank still sends, at most until their deadlines. Gives up the others.
void finish_messages(World& world);

}  // namespace gradus::dist::internal
