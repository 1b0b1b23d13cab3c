// MessageWork: point-to-point messages between two ranks, for send, recv, their object forms, remote_send and
// Mailbox. A message is a MessageHeader and a payload; a receive is matched by peer and tag, in the order of
// sending. The transport reads and writes host memory. Tensors of GPUs are staged: copied to and from host
// memory by the threads that send and wait, since the transport's threads must not call CUDA.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/work.h"
#include "gradus/distributed/transport/transport.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Describes the payload, and is sent before it. Trivially copyable.
struct MessageHeader {
  // kObject: serialized bytes. kNone: no payload, an undefined tensor.
  enum class Kind : uint8_t { kTensor, kObject, kNone } kind = Kind::kTensor;
  DType dtype = DType::kU8;
  int32_t ndim = 0;
  int64_t dims[kMaxDims] = {};
  uint8_t channels_last = 0;  // layout of the tensor: 1 channels-last, 0 row-major
  // For remote_send: Note [Remote messages] in remote.cc.
  uint32_t open = 0;   // number of recordings (gradient tapes) that the sender has open
  uint32_t id = 0;     // id of the answer (a gradient) for the first recording that needs one
  uint64_t wants = 0;  // bit i: the i-th open recording needs an answer
  // For a Mailbox: Address and Parcel in mailbox.h, and the hash of Mailbox::set_program's text.
  uint64_t step = 0;
  uint64_t program = 0;
  uint64_t generator[2] = {};
  int32_t parcels = 0;
  uint8_t wants_gradient = 0;
};
std::string describe(const MessageHeader& header);  // "f32[4,8]", "an object"
// Returns the header of a message with x, which must be row-major, channels-last, or undefined: kNone.
MessageHeader header_of(const Tensor& x);
// Errors: DeviceError if `device`, that of a received tensor, is meta.
void check_payload_device(const char* op, Device device);
// Returns x in host memory: x itself, or a copy in x's layout (row-major if x is not dense) if x is on a GPU.
// Blocks until x's device has written x.
Tensor to_payload(const Tensor& x);
// Allocates the tensor that a header describes; undefined for kNone. For a GPU, the tensor is in host memory.
// Errors: MismatchError naming rank `source` if the header is malformed or does not describe `bytes` bytes.
Tensor allocate_payload(const char* op, int source, const MessageHeader& header, size_t bytes, Device device);

// Called when a header has arrived: returns where the payload of `bytes` bytes is written. May run on any
// thread with the transport's lock held, so it must not call the transport.
// Errors: MismatchError, which both ranks get.
using AcceptMessage = std::function<void*(int source, const MessageHeader& header, size_t bytes)>;

// What identifies a message. The group has several members, this rank among them.
struct Message {
  const char* op;  // for errors; a literal
  GroupState& group;
  int peer;                             // rank in the job, or kAnyRank
  uint32_t tag;                         // matches send and receive, within the group and channel
  std::optional<Milliseconds> timeout;  // nullopt: the group's
  Channel channel = Channel::kUser;
};

// Makes a checked Message of Channel::kUser. `peer`: rank in the job or kAnyRank; `what`: its
// name in errors ("dst").
// Errors: ValueError if this rank or the peer is no member, or they are the same rank.
Message make_message(const char* op, const Group& group, int peer, const char* what, uint32_t tag,
                     std::optional<Milliseconds> timeout);

// A send or receive in progress; starting never blocks. Unless the job has failed, wait for it or detach() it
// before dropping the last reference. In a forked child the destructor leaves the parent's message alone.
class MessageWork final : public WorkState {
 public:
  // Sends x: row-major or channels-last, a result of to_payload, or undefined. The message keeps x alive.
  static Ref<MessageWork> send(const Message& message, const MessageHeader& header, const Tensor& x);
  // The caller keeps the payload alive until the message is done. `keep`: kept alive, may be undefined.
  static Ref<MessageWork> send(const Message& message, const MessageHeader& header,
                               std::span<const std::byte> payload, const Tensor& keep = {});
  // The payload goes where `accept` returns. `keep` is the tensor that is written, or undefined: it stays
  // alive, and its version changes when the message is done.
  // `staging`: if `keep` is on a GPU, the host tensor that receives the payload. The first wait() or
  // is_completed() after the message has arrived queues the copy to `keep` on the current stream of its
  // thread, after the work that receive() finds on the stream of its own. Later calls make their current
  // stream wait for the copy. `keep` is not written if the message fails, or if neither is called.
  static Ref<MessageWork> receive(const Message& message, AcceptMessage accept, const Tensor& keep,
                                  const Tensor& staging = {});

  ~MessageWork() override;

  // As Work::wait. A shorter `timeout` than the message's leaves the message in progress.
  void wait(std::optional<Milliseconds> timeout) override;
  // Waits as if the message had been started now: `timeout` (default: the message's) counts from here.
  // `doing` describes the wait in the errors of other ranks.
  void wait_from_now(const std::string& doing, std::optional<Milliseconds> timeout = {});
  bool is_completed() override;
  int source_rank() override;  // rank in the job; -1 for a send, or a receive that is not done
  bool receives() const { return receives_; }
  // From now on the message makes progress even if no thread waits for it. `world` keeps it until it is done,
  // even if no Work refers to it.
  void detach(World& world);

 private:
  MessageWork(const Message& message, const Tensor& keep, bool receives);
  // Whether the payload of a receive goes to a staging tensor. Sends have no tensors of GPUs.
  bool is_staged() const { return tensor_ && tensor_.device().type == DeviceType::kCUDA; }
  bool has_ended();  // as is_completed, without the copy to a GPU
  void arrived();    // counts a finished receive, and changes the version of a host tensor, once
  void copy_from_staging();
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
  std::atomic<bool> arrived_{false};
  std::mutex staging_mutex_;  // guards staging_ and ready_
  Tensor staging_;            // undefined after the copy
  Event ready_;               // when tensor_ may be written; after the copy, when it may be read
  Ref<Request> request_;
};

// Waits for the detached messages that this rank sends, until their deadlines. Drops the receives.
// Errors: the first one of a send.
void finish_messages(World& world);

}  // namespace gradus::dist::internal
