// MessageWork: one point-to-point message (send or receive of a tensor or object) as an asynchronous Work,
// over the Transport. A message is a fixed-size MessageHeader (kind, dtype, shape) followed by the payload
// bytes, or a DeviceOffer (device_messages.h). The receiver's accept function reads the header on arrival and
// returns the address for the payload. Waits end with the message's deadline or with the job's failure.
#include "gradus/distributed/group/internal/message_work.h"

#include <algorithm>
#include <cstring>
#include <thread>

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

namespace {

// Returns the shape of a tensor of `bytes` bytes.
// Errors: MismatchError naming rank `source` if the header is malformed or does not describe `bytes` bytes.
Shape shape_of(const char* op, int source, const MessageHeader& header, size_t bytes) {
  if (header.kind != MessageHeader::Kind::kTensor)
    throw MismatchError(op, source, "rank ", source, " sent a malformed message");
  const Shape shape(std::span(header.dims, size_t(header.ndim)));
  if (size_t(checked_numel(shape, op)) * size_of(header.dtype) != bytes)
    throw MismatchError(op, source, "rank ", source, " sent ", bytes, " bytes for ", describe(header));
  return shape;
}

// Allocates the tensor that a header describes.
Tensor allocate(const MessageHeader& header, const Shape& shape, Device device) {
  const TensorOptions options{.dtype = header.dtype, .device = device};
  const bool channels_last = header.channels_last && header.ndim >= 3 && header.ndim <= 5;
  return channels_last ? empty_channels_last(shape, options) : empty(shape, options);
}

}  // namespace

MessageWork::MessageWork(const Message& message, bool receives)
    : op_(message.op),
      membership_(message.group.world()->membership),
      transport_(message.group.world()->transport),
      timeout_(message.timeout.value_or(message.group.timeout())),
      deadline_(message.group.wait_limits(message.timeout).deadline),
      peer_(message.peer),
      doing_(describe_call(message, receives)) {}

MessageWork::~MessageWork() {
  // In a forked child the requests belong to the parent and must not be completed or canceled.
  if (membership_->is_rank()) return;
  gradus::internal::abandon(std::move(request_));
  gradus::internal::abandon(std::move(receive_));
  gradus::internal::abandon(std::move(offered_));
}

Ref<MessageWork> MessageWork::send(const Message& message, const MessageHeader& header, const Tensor& x) {
  if (!x) return send(message, header, std::span<const std::byte>());
  DeviceMessages& device_messages = *message.group.world()->device_messages();
  const bool is_on_gpu = x.device().type == DeviceType::kCUDA;
  if (!is_on_gpu || !message.group.uses_device_library() ||
      device_messages.endpoint(message.op, x.device()).empty()) {
    const Tensor in = is_on_gpu ? raw::to(x, kCPU) : x;
    wait_for_device(in);
    return send(message, header, {static_cast<const std::byte*>(in.raw_ptr()), size_t(in.nbytes())}, in);
  }
  auto work = Ref<MessageWork>(new MessageWork(message, false));
  work->membership_->check(message.op);
  const auto offered = work->offered_ = std::make_shared<DeviceMessage>();
  offered->op = message.op;
  offered->text = work->doing_;
  offered->timeout = work->timeout_;
  offered->group = message.group.id();
  offered->peer = message.peer;
  offered->offer.bytes = size_t(x.nbytes());
  offered->device = x.device();
  offered->tensor = x;
  offered->posted = Event::record(current_stream(x.device()));
  work->membership_->count_sent(message.peer);
  work->request_ = device_messages.send(offered, {message.group.id(), message.channel, message.tag},
                                        std::as_bytes(std::span(&header, 1)));
  return work;
}

Ref<MessageWork> MessageWork::send(const Message& message, const MessageHeader& header,
                                   std::span<const std::byte> payload, const Tensor& keep) {
  GroupState& group = message.group;
  auto work = Ref<MessageWork>(new MessageWork(message, false));
  work->sent_ = keep;
  work->membership_->check(message.op);
  work->membership_->count_sent(message.peer);
  work->request_ = work->transport_->send(message.peer, {group.id(), message.channel, message.tag},
                                          std::as_bytes(std::span(&header, 1)), payload);
  return work;
}

Ref<MessageWork> MessageWork::receive(const Message& message, CheckMessage check, Device device,
                                      const Tensor& x) {
  Receive receive{.check = std::move(check), .device = device, .tensor = x};
  if (device.type == DeviceType::kCUDA) {
    if (message.group.uses_device_library())
      message.group.world()->device_messages()->endpoint(message.op, device);
    if (x) receive.posted = Event::record(current_stream(device));
  } else if (x) {
    wait_for_device(x);
  }
  return start_receive(message, std::move(receive));
}

Ref<MessageWork> MessageWork::receive_bytes(const Message& message, AcceptMessage accept) {
  return start_receive(message, {.accept = std::move(accept)});
}

Ref<MessageWork> MessageWork::start_receive(const Message& message, Receive receive) {
  GroupState& group = message.group;
  auto work = Ref<MessageWork>(new MessageWork(message, true));
  receive.op = message.op;
  receive.text = work->doing_;
  receive.timeout = work->timeout_;
  receive.group = group.id();
  receive.device_messages = group.world()->device_messages();
  work->copied_ = receive.posted;
  work->receive_ = std::make_shared<Receive>(std::move(receive));
  work->membership_->check(message.op);
  const auto on_header = [receive = work->receive_](int source, std::span<const std::byte> bytes,
                                                    size_t payload) {
    return receive->on_header(source, bytes, payload);
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

// Called by the transport. Returns where the payload goes. The bytes come from another process and are checked before
// use.
void* MessageWork::Receive::on_header(int source, std::span<const std::byte> bytes, size_t payload) {
  DeviceOffer offer;
  const bool is_offer = bytes.size() == sizeof header + sizeof offer;
  try {
    if (bytes.size() != sizeof header && !is_offer)
      throw MismatchError(op, source, "rank ", source, " sent a message of another kind");
    std::memcpy(&header, bytes.data(), sizeof header);
    if (is_offer) std::memcpy(&offer, bytes.data() + sizeof header, sizeof offer);
    if (header.kind > MessageHeader::Kind::kNone || header.dtype > DType::kBool || header.ndim < 0 ||
        header.ndim > kMaxDims || (is_offer && (header.kind != MessageHeader::Kind::kTensor || payload != 0)))
      throw MismatchError(op, source, "rank ", source, " sent a malformed message");
    const size_t size = is_offer ? offer.bytes : payload;
    const bool is_on_gpu = device.type == DeviceType::kCUDA;
    const bool by_library = is_offer && is_on_gpu && device_messages->connects(offer, device);
    Shape shape;
    void* to = nullptr;
    if (accept) {
      to = accept(source, header, size);
    } else {
      check(source, header, size);
      if (header.kind == MessageHeader::Kind::kNone && size == 0) return nullptr;
      shape = shape_of(op, source, header, size);
      if (is_on_gpu && !by_library)
        staging = tensor ? empty(tensor.shape(), {.dtype = header.dtype}) : allocate(header, shape, kCPU);
      if (!is_on_gpu && !tensor) tensor = allocate(header, shape, device);
      if (!by_library) to = (is_on_gpu ? staging : tensor).raw_ptr();
    }
    if (!is_offer) return to;
    offered = std::make_shared<DeviceMessage>();
    offered->op = op;
    offered->text = text;
    offered->timeout = timeout;
    offered->group = group;
    offered->peer = source;
    offered->receives = true;
    offered->offer = offer;
    offered->device = device;
    offered->peer_device = offer.device;
    offered->by_library = by_library;
    if (by_library) {
      offered->tensor = tensor;
      offered->posted = posted;
      offered->allocate = [header = header, shape, device = device] {
        return allocate(header, shape, device);
      };
    } else {
      offered->host = to;
      offered->host_owner =
          std::make_shared<std::pair<Tensor, AcceptMessage>>(staging ? staging : tensor, accept);
    }
    device_messages->answer(offered);
    return nullptr;
  } catch (const MismatchError& error) {
    if (is_offer) device_messages->report(op, error);  // the sender waits for an answer
    throw;
  }
}

void MessageWork::wait(std::optional<Milliseconds> timeout) {
  const Deadline limit = Deadline::after(timeout.value_or(Milliseconds::max()));
  const auto throw_timeout = [&] {
    throw TimeoutError(op_, -1, "not done within ", timeout->count(), " ms, but still under way");
  };
  if (timeout && *timeout < deadline_.remaining()) {
    // The caller's limit is shorter than the message's, which then continues.
    // Polls every millisecond.
    Futex never;
    while (!has_ended() && !limit.passed())
      never.wait(
          local_wait_limits(Deadline::after(std::min(limit.remaining(), Milliseconds(1)))),
          [] { return false; }, op_);
    if (!has_ended()) throw_timeout();
  }
  wait_until_deadline();
  if (!timeout || !goes_by_library()) return;
  while (!offered()->done.done()) {
    if (limit.passed()) throw_timeout();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  offered()->done.synchronize();  // throws its errors
}

void MessageWork::wait_from_now(const std::string& doing, std::optional<Milliseconds> timeout) {
  doing_ = doing;
  deadline_ = Deadline::after(timeout.value_or(timeout_));
  wait_until_deadline();
}

// Blocks until the message is complete, or queued on a GPU. Reports a mismatch to the whole job, which then fails on all
// ranks.
void MessageWork::wait_until_deadline() {
  membership_->set_activity(Activity::kInCall, op_, doing_);
  const WaitLimits limits{membership_.get(), deadline_};
  try {
    std::optional<WaitScope> receiving;
    if (receives() && peer_ != kAnyRank)
      receiving.emplace(*membership_, Wait::for_message(op_, doing_, membership_->next_message(peer_)));
    transport_->wait(*request_, limits, op_);
    if (offered()) offered()->wait(*transport_, limits);
  } catch (const MismatchError& error) {
    throw_failure(op_, membership_->report({Failure::Kind::kMismatch, error.rank(), text_of(error)}));
  }
  membership_->set_activity(Activity::kOutside, "", doing_);
  arrived();
  order_current_stream();
}

bool MessageWork::has_ended() {
  try {
    if (!request_->done()) return false;
    if (offered() && !offered()->has_ended()) return membership_->failed();
    arrived();
  } catch (const DistributedError&) {  // completed with an error, which wait() throws
  }
  return true;
}

bool MessageWork::is_completed() {
  if (!has_ended()) return false;
  if (goes_by_library()) return !offered()->is_queued || offered()->done.done();
  if (arrived_) order_current_stream();
  return true;
}

// Once, when a receive is known to be complete: counts the message, and increments the version of the tensor
// that is written, so that autograd notices the write.
void MessageWork::arrived() {
  if (!receives() || arrived_.exchange(true)) return;
  membership_->count_received(request_->source());
  const std::lock_guard lock(staging_mutex_);
  if (goes_by_library()) receive_->tensor = offered()->tensor;
  if (receive_->tensor && !receive_->staging) receive_->tensor.storage()->bump_version();
}

// After arrived(): orders the current stream after the message. If the payload is staged, the first call copies it to the
// GPU.
void MessageWork::order_current_stream() {
  if (goes_by_library()) return current_stream(offered()->device).wait(offered()->done);
  if (!receives() || receive_->device.type != DeviceType::kCUDA) return;
  const std::lock_guard lock(staging_mutex_);
  const Stream stream = current_stream(receive_->device);
  stream.wait(copied_);
  if (!receive_->staging) return;
  if (receive_->tensor)
    raw::copy_(receive_->tensor, receive_->staging);
  else
    receive_->tensor = raw::to(receive_->staging, receive_->device);
  copied_ = Event::record(stream);
  receive_->staging = Tensor();
}

int MessageWork::source_rank() { return receives() && has_ended() ? request_->source() : -1; }

// Unlike has_ended(), does not fail if a receiver has left without an answer to the offer.
bool MessageWork::may_be_dropped() {
  return offered_ && !offered_->is_answered ? membership_->failed() : has_ended();
}

void MessageWork::detach(World& world) {
  if (may_be_dropped()) return;
  transport_->progress_in_background();
  std::lock_guard lock(world.messages_mutex);
  std::erase_if(world.messages, [](const Ref<WorkState>& message) {
    return static_cast<MessageWork&>(*message).may_be_dropped();
  });
  world.messages.push_back(Ref<WorkState>(this));
}

void finish_messages(World& world) {
  std::vector<Ref<WorkState>> messages;
  {
    std::lock_guard lock(world.messages_mutex);
    messages.swap(world.messages);
  }
  for (const Ref<WorkState>& message : messages) {
    auto& work = static_cast<MessageWork&>(*message);
    if (work.receives()) continue;
    if (work.offered_ && work.offered_->is_abandoned({world.membership.get(), work.deadline_})) continue;
    work.wait({});
  }
}

}  // namespace gradus::dist::internal
