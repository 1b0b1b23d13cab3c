// Point-to-point messages of tensors: send, recv, isend, irecv and batch_isend_irecv. A message is a header with
// the dtype and shape, and the tensor's bytes; MessageWork moves it. The blocking functions start a message and
// wait for it. Peers are ranks in the job. The functions may be called on any thread.
#include "gradus/autograd/graph/tracking.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/internal/call_batch.h"
#include "gradus/distributed/group/internal/message_work.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist {

using internal::CallBatch;
using internal::GroupState;
using internal::Message;
using internal::MessageHeader;
using internal::MessageWork;

namespace internal {

// `what` is the name of the option with the peer, for errors: "dst" or "src". Before the first message, waits
// until all ranks are known to belong to one job (World::wait_for_collision_check).
// Errors: StateError if this process has not joined a job; ValueError if this rank or the peer is no member of the
// group, or the peer is this rank.
Message make_message(const char* op, const Group& handle, int peer, const char* what, uint32_t tag,
                     std::optional<Milliseconds> timeout) {
  refuse_capture(op, "a replay sends and receives no messages");
  GroupState& group = handle.state();
  group.check_member(op);
  if (peer != kAnyRank) group.index_of(peer, op, what);
  if (group.size() == 1 || peer == group.members()[group.index()])
    throw ValueError(op, "a rank has no messages for itself: ", what, " ", peer);
  group.world()->wait_for_collision_check(op);
  return {op, group, peer, tag, timeout};
}

}  // namespace internal

namespace {

// Errors: those of check_has_data; StateError if an open recording tracks x, which would miss the call.
void check(const char* op, const Tensor& x) {
  internal::check_has_data(op, "x", x);
  if (autograd::is_tracked(x))
    throw StateError(op,
                     "x is followed by an open recording, which sees nothing of this call: use "
                     "dist::remote_send and dist::remote_recv, or give detach(x): ",
                     describe(x));
}

// Starts to send x, or a row-major copy of x. The message keeps the tensor that it sends alive.
Ref<MessageWork> start_send(const char* op, const Tensor& x, const SendOptions& options) {
  const Message message =
      internal::make_message(op, options.group, options.dst, "dst", options.tag, options.timeout);
  check(op, x);
  const Tensor in = raw::contiguous(x);
  return MessageWork::send(message, internal::header_of(in), in);
}

// Starts to receive into x, which must be row-major.
// Errors: MismatchError, thrown by the message's wait() on both ranks, if the message is no tensor of x's dtype
// and size in bytes. The shape may differ.
Ref<MessageWork> start_recv(const char* op, const Tensor& x, const RecvOptions& options) {
  const Message message =
      internal::make_message(op, options.group, options.src, "src", options.tag, options.timeout);
  check(op, x);
  if (!x.is_row_major())
    throw ShapeError(op, "x does not lie in row-major order, call contiguous(): ", describe(x));
  const auto check_message = [op, dtype = x.dtype(), shape = x.shape(), expected = size_t(x.nbytes()),
                              receiver = message.group.world()->rank](int source, const MessageHeader& header,
                                                                      size_t bytes) {
    if (header.kind != MessageHeader::Kind::kTensor || header.dtype != dtype || bytes != expected)
      throw MismatchError(op, source, "rank ", source, " sent ", describe(header), ", where rank ", receiver,
                          " receives ", dtype, shape);
  };
  return MessageWork::receive(message, check_message, x.device(), x);
}

// Returns a Work for the message. The message makes progress in a background thread, also if the Work is dropped.
Work detach(const Ref<MessageWork>& message, const Group& group) {
  message->detach(*group.state().world());
  return Work(Ref<internal::WorkState>(message));
}

}  // namespace

void send(const Tensor& x, const SendOptions& options) {
  if (CallBatch* batch = CallBatch::current()) return batch->add(isend(x, options));
  start_send("send", x, options)->wait({});
}

int recv(const Tensor& x, const RecvOptions& options) {
  if (CallBatch* batch = CallBatch::current()) {
    if (options.src == kAnyRank) throw ValueError("recv", "expected a src within coalesced, got any rank");
    batch->add(irecv(x, options));
    return options.src;
  }
  const Ref<MessageWork> message = start_recv("recv", x, options);
  message->wait({});
  return message->source_rank();
}

Work isend(const Tensor& x, const SendOptions& options) {
  return detach(start_send("isend", x, options), options.group);
}

Work irecv(const Tensor& x, const RecvOptions& options) {
  return detach(start_recv("irecv", x, options), options.group);
}

std::vector<Work> batch_isend_irecv(const std::vector<P2POp>& ops) {
  std::vector<Work> works;
  for (const P2POp& op : ops)
    works.push_back(op.kind == P2POp::Kind::kSend
                        ? isend(op.tensor, {.dst = op.peer, .tag = op.tag, .group = op.group})
                        : irecv(op.tensor, {.src = op.peer, .tag = op.tag, .group = op.group}));
  return works;
}

}  // namespace gradus::dist
