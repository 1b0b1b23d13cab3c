// MessageWork: one point-to-point message (send or receive of a tensor or object) as an asynchronous Work,
// over the Transport. A message is a fixed-size MessageHeader (kind, dtype, shape) followed by the payload
// bytes. The receiver's accept function reads the header on arrival and returns the address for the payload.
// Waits end with the message's deadline or with the job's failure.
#include "gradus/distributed/group/internal/message_work.h"

#include <algorithm>
#include <cstring>

#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist::internal {
namespace {

// Returns "recv from rank 1 (tag 0) in group 'world'", for errors and activity reports.
std::string describe_call(const Message& m, bool receives) {
  return concat(m.op, receives ? " from " : " to ", m.peer == kAnyRank ? "any rank" : concat("rank ", m.peer),
                " (tag ", m.tag, ") in group '", m.group.name(), "'");
}

}  // namespace

std::string describe(const MessageHeader& header) {
  if (header.kind == MessageHeader::Kind::kObject) return "an object";
  if (header.kind == MessageHeader::Kind::kNone) return "no gradient";
  return concat(header.dtype, Shape(std::span(header.dims, header.ndim)));
}

MessageHeader header_of(const Tensor& x) {
  MessageHeader header;
  if (!x.defined()) {
    header.kind = MessageHeader::Kind::kNone;
    return header;
  }
  header.dtype = x.dtype();
  header.ndim = x.dim();
  std::copy(x.shape().begin(), x.shape().end(), header.dims);
  header.channels_last = x.is_channels_last();
  return header;
}

void check_payload_device(const char* op, Device device) {
  if (device.type == DeviceType::kMeta) throw DeviceError(op, "expected a device with memory, got ", device);
}

Tensor to_payload(const Tensor& x) {
  if (x.device().type == DeviceType::kCUDA) return raw::to(x, kCPU);
  wait_for_device(x);
  return x;
}

Tensor allocate_payload(const char* op, int source, const MessageHeader& header, size_t bytes,
                        Device device) {
  if (header.kind == MessageHeader::Kind::kNone && bytes == 0) return Tensor();
  if (header.kind != MessageHeader::Kind::kTensor)
    throw MismatchError(op, source, "rank ", source, " sent a malformed message");
  const Shape shape(std::span(header.dims, size_t(header.ndim)));
  if (size_t(checked_numel(shape, op)) * size_of(header.dtype) != bytes)
    throw MismatchError(op, source, "rank ", source, " sent ", bytes, " bytes for ", describe(header));
  if (device.type == DeviceType::kCUDA) device = kCPU;
  const TensorOptions options{.dtype = header.dtype, .device = device};
  const bool channels_last = header.channels_last && header.ndim >= 3 && header.ndim <= 5;
  return channels_last ? empty_channels_last(shape, options) : empty(shape, options);
}

MessageWork::MessageWork(const Message& message, const Tensor& keep, bool receives)
    : op_(message.op),
      membership_(message.group.world()->membership),
      transport_(message.group.world()->transport),
      timeout_(message.timeout.value_or(message.group.timeout())),
      deadline_(message.group.wait_limits(message.timeout).deadline),
      peer_(message.peer),
      doing_(describe_call(message, receives)),
      tensor_(keep),
      receives_(receives) {}

MessageWork::~MessageWork() {
  // In a forked child the request belongs to the parent and must not be completed or canceled.
  if (!membership_->is_rank()) gradus::internal::abandon(std::move(request_));
}

Ref<MessageWork> MessageWork::send(const Message& message, const MessageHeader& header, const Tensor& x) {
  if (!x) return send(message, header, std::span<const std::byte>());
  return send(message, header, {static_cast<const std::byte*>(x.raw_ptr()), size_t(x.nbytes())}, x);
}

Ref<MessageWork> MessageWork::send(const Message& message, const MessageHeader& header,
                                   std::span<const std::byte> payload, const Tensor& keep) {
  GroupState& group = message.group;
  auto work = Ref<MessageWork>(new MessageWork(message, keep, false));
  work->membership_->check(message.op);
  work->membership_->count_sent(message.peer);
  work->request_ = work->transport_->send(message.peer, {group.id(), message.channel, message.tag},
                                          std::as_bytes(std::span(&header, 1)), payload);
  return work;
}

Ref<MessageWork> MessageWork::receive(const Message& message, AcceptMessage accept, const Tensor& keep,
                                      const Tensor& staging) {
  GroupState& group = message.group;
  auto work = Ref<MessageWork>(new MessageWork(message, keep, true));
  work->staging_ = staging;
  if (staging) work->ready_ = Event::record(current_stream(keep.device()));
  work->membership_->check(message.op);
  const auto on_header = [op = message.op, accept = std::move(accept)](
                             int source, std::span<const std::byte> bytes, size_t payload) -> void* {
    MessageHeader header;
    if (bytes.size() != sizeof header)
      throw MismatchError(op, source, "rank ", source, " sent a message of another kind");
    std::memcpy(&header, bytes.data(), sizeof header);
    // The bytes come from another process and are checked before use.
    if (header.kind > MessageHeader::Kind::kNone || header.dtype > DType::kBool || header.ndim < 0 ||
        header.ndim > kMaxDims)
      throw MismatchError(op, source, "rank ", source, " sent a malformed message");
    return accept(source, header, payload);
  };
  std::vector<int> sources;
  if (message.peer == kAnyRank)
    for (int rank : group.members())
      if (rank != work->membership_->rank()) sources.push_back(rank);
  work->request_ =
      work->transport_->receive(message.peer == kAnyRank ? kAnySource : message.peer,
                                {group.id(), message.channel, message.tag}, on_header, std::move(sources));
  return work;
}

void MessageWork::wait(std::optional<Milliseconds> timeout) {
  if (timeout && *timeout < deadline_.remaining()) {
    // The caller's limit is shorter than the message's, which then continues.
    // Polls every millisecond.
    const Deadline limit = Deadline::after(*timeout);
    Futex never;
    while (!has_ended() && !limit.passed())
      never.wait(
          local_wait_limits(Deadline::after(std::min(limit.remaining(), Milliseconds(1)))),
          [] { return false; }, op_);
    if (!has_ended())
      throw TimeoutError(op_, -1, "not done within ", timeout->count(), " ms, but still under way");
  }
  wait_until_deadline();
}

void MessageWork::wait_from_now(const std::string& doing, std::optional<Milliseconds> timeout) {
  doing_ = doing;
  deadline_ = Deadline::after(timeout.value_or(timeout_));
  wait_until_deadline();
}

// Blocks until the message is complete. Reports a mismatch to the whole job, which then fails on all ranks.
void MessageWork::wait_until_deadline() {
  membership_->set_activity(Activity::kInCall, op_, doing_);
  try {
    std::optional<WaitScope> receiving;
    if (receives_ && peer_ != kAnyRank)
      receiving.emplace(*membership_, Wait::for_message(op_, doing_, membership_->next_message(peer_)));
    transport_->wait(*request_, {membership_.get(), deadline_}, op_);
  } catch (const MismatchError& error) {
    throw_failure(op_, membership_->report({Failure::Kind::kMismatch, error.rank(), text_of(error)}));
  }
  membership_->set_activity(Activity::kOutside, "", doing_);
  arrived();
  copy_from_staging();
}

bool MessageWork::has_ended() {
  try {
    if (!request_->done()) return false;
    arrived();
  } catch (const DistributedError&) {  // completed with an error, which wait() throws
  }
  return true;
}

bool MessageWork::is_completed() {
  if (!has_ended()) return false;
  if (arrived_) copy_from_staging();
  return true;
}

// Once, when a receive is known to be complete: counts the message, and increments the version of the tensor
// that was written, so that autograd notices the write.
void MessageWork::arrived() {
  if (!receives_ || arrived_.exchange(true)) return;
  membership_->count_received(request_->source());
  if (tensor_ && !is_staged()) tensor_.storage()->bump_version();
}

// After arrived(): orders the current stream after the copy to tensor_, which the first call queues.
void MessageWork::copy_from_staging() {
  if (!is_staged()) return;
  const std::lock_guard lock(staging_mutex_);
  const Stream stream = current_stream(tensor_.device());
  stream.wait(ready_);
  if (!staging_) return;
  raw::copy_(tensor_, staging_);
  ready_ = Event::record(stream);
  staging_ = Tensor();
}

int MessageWork::source_rank() { return receives_ && has_ended() ? request_->source() : -1; }

void MessageWork::detach(World& world) {
  if (has_ended()) return;
  transport_->progress_in_background();
  std::lock_guard lock(world.messages_mutex);
  std::erase_if(world.messages, [](const Ref<WorkState>& message) {
    return static_cast<MessageWork&>(*message).has_ended();
  });
  world.messages.push_back(Ref<WorkState>(this));
}

void finish_messages(World& world) {
  std::vector<Ref<WorkState>> messages;
  {
    std::lock_guard lock(world.messages_mutex);
    messages.swap(world.messages);
  }
  for (const Ref<WorkState>& message : messages)
    if (!static_cast<MessageWork&>(*message).receives()) message->wait({});
}

}  // namespace gradus::dist::internal
