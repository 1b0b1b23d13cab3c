// MessageWork: point-to-point messages between two ranks, for send, recv, their object forms, remote_send and
// Mailbox. A message is a MessageHeader and a payload; a receive is matched by peer and tag, in the order of
// sending. DeviceMessages moves the payload from GPU to GPU if it can. Otherwise the transport moves it between
// hosts' memory, and tensors of GPUs are staged: copied to and from host memory by threads that may call CUDA,
// unlike the transport's.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/internal/device_messages.h"
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

// Called when a header has arrived: checks whether the receive takes it. May run on any thread with the transport's
// lock held, so it must not call the transport.
// Errors: MismatchError, which both ranks get.
using CheckMessage = std::function<void(int source, const MessageHeader& header, size_t bytes)>;
// As CheckMessage. Returns where the payload of `bytes` bytes is written.
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
  // Sends x, row-major, channels-last, or undefined, and keeps it alive. On a GPU the message follows the work of the
  // current stream, which after wait() follows the message. Without a library for GPUs send() blocks until x's device
  // has written x.
  static Ref<MessageWork> send(const Message& message, const MessageHeader& header, const Tensor& x);
  // The caller keeps the payload alive until the message is done. `keep`: kept alive, may be undefined.
  static Ref<MessageWork> send(const Message& message, const MessageHeader& header,
                               std::span<const std::byte> payload, const Tensor& keep = {});
  // Receives into x, row-major, or without it into a new tensor on `device`. The version of x changes when the message
  // is done. On a GPU the message follows the work of the current stream, and the current stream of a thread follows the
  // message after a wait(), or once is_completed() has returned true. If the payload is staged, the first of these calls
  // queues the copy to the GPU; without one, x is not written.
  static Ref<MessageWork> receive(const Message& message, CheckMessage check, Device device,
                                  const Tensor& x = {});
  // Receives into the memory that `accept` returns.
  static Ref<MessageWork> receive_bytes(const Message& message, AcceptMessage accept);

  ~MessageWork() override;

  // As Work::wait. A shorter `timeout` than the message's leaves the message in progress.
  void wait(std::optional<Milliseconds> timeout) override;
  // Waits as if the message had been started now: `timeout` (default: the message's) counts from here.
  // `doing` describes the wait in the errors of other ranks.
  void wait_from_now(const std::string& doing, std::optional<Milliseconds> timeout = {});
  bool is_completed() override;
  int source_rank() override;  // rank in the job; -1 for a send, or a receive that is not done
  bool receives() const { return receive_ != nullptr; }
  // Of a receive after wait(): the header, and the tensor that was received, undefined for kNone.
  const MessageHeader& header() const { return receive_->header; }
  const Tensor& tensor() const { return receive_->tensor; }
  // From now on the message makes progress even if no thread waits for it. `world` keeps it until it is done,
  // even if no Work refers to it.
  void detach(World& world);

 private:
  // What a receive shares with the transport's request.
  struct Receive {
    const char* op;
    std::string text;  // doing_
    Milliseconds timeout;
    uint32_t group;
    std::shared_ptr<DeviceMessages> device_messages;
    AcceptMessage accept;  // of bytes
    CheckMessage check;    // of a tensor
    Device device;
    Tensor tensor;  // x, or the received one
    Event posted;   // of work that uses x
    MessageHeader header = {};
    Tensor staging = {};                          // in host memory, until it is copied to the GPU
    std::shared_ptr<DeviceMessage> offered = {};  // null: the payload came with the header

    void* on_header(int source, std::span<const std::byte> bytes, size_t payload);
  };

  MessageWork(const Message& message, bool receives);
  static Ref<MessageWork> start_receive(const Message& message, Receive receive);
  // The message's part of DeviceMessages, or null. Of a receive, known when request_ is done.
  const std::shared_ptr<DeviceMessage>& offered() const { return receive_ ? receive_->offered : offered_; }
  bool goes_by_library() const { return offered() && offered()->by_library; }
  bool has_ended();  // as is_completed, but only queued on the GPU
  bool may_be_dropped();
  void arrived();  // counts a finished receive, and changes the version of x, once
  void order_current_stream();
  void wait_until_deadline();
  friend void finish_messages(World& world);

  const char* const op_;
  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<Transport> transport_;
  const Milliseconds timeout_;
  Deadline deadline_;
  const int peer_;
  std::string doing_;
  Tensor sent_;
  std::atomic<bool> arrived_{false};
  std::mutex staging_mutex_;  // guards the receive's tensors and copied_
  Event copied_;  // when x may be written; after the copy from the staging tensor, when it may be read
  std::shared_ptr<Receive> receive_;
  std::shared_ptr<DeviceMessage> offered_;  // of a send
  Ref<Request> request_;  // the payload's; if the message is offered, a send's answer and a receive's offer
};

// Waits for the detached messages that this rank sends, until their deadlines. Drops the receives, and offers to ranks
// that have left without an answer.
// Errors: the first one of a send.
void finish_messages(World& world);

}  // namespace gradus::dist::internal
