// remote_send and remote_recv: point-to-point messages that carry the autograd graph between ranks. Each adds
// a node to the local graph; in the backward the receiver's node sends the gradient, and the sender's node
// waits for it. A recording is the tape of a GradManager; a recording follows a tensor if the tensor's
// gradient is computed in its backward.
#include "gradus/distributed/group/remote.h"

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/internal/message_work.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist {
namespace {

using autograd::RecordingState;
using internal::Channel;
using internal::GroupState;
using internal::MessageHeader;
using internal::MessageWork;

// Note [Remote messages]
// If the sender wants the gradient of a message, the message carries an id for each of the sender's
// recordings that follow it. It is answered once under each id: with a gradient, or with "none". A gradient
// is sent as such a message too, and an outer recording may follow it on both ranks. So gradients of higher
// order need nothing else. Messages arrive in order. Each answer has a tag of its own, so recordings can end
// in any order. Sends never wait. The engine runs the newest node first, so gradients come back in the
// reverse order of the messages on both ranks, and no ranks wait for each other in a circle.
constexpr uint32_t kMessageTag = 0;
uint32_t answer_tag(uint32_t id) { return id | uint32_t{1} << 31; }

// The other rank of a message, and its options.
struct Link {
  Group group;
  int peer;  // rank in the job
  std::optional<Milliseconds> timeout;

  internal::Message message(const char* op, uint32_t tag) const {
    return {op, group.state(), peer, tag, timeout, Channel::kRemote};
  }
  internal::World* world() const { return group.state().world(); }
};

Link checked_link(const char* op, const Group& group, int peer, std::optional<Milliseconds> timeout) {
  refuse_capture(op, "a replay sends and receives no messages");
  GroupState& state = group.state();
  state.check_member(op);
  state.index_of(peer, op, "rank");
  if (peer == (state.world() ? state.world()->rank : 0))
    throw ValueError(op, "rank ", peer, " is this rank itself");
  return {internal::resolved(group), peer, timeout};
}

// Returns this rank's open recordings, oldest first.
// Errors: StateError inside of autograd::checkpoint.
std::vector<RecordingState*> open_now(const char* op) {
  std::vector<RecordingState*> open = internal::open_recording_states(op);
  for (const RecordingState* r : open)
    if (r->is_probe())
      throw StateError(op, "cannot be part of a checkpoint, whose function is computed twice");
  return open;
}

// The ids under which a message is answered, one for each recording that follows it on this rank.
struct Answers {
  std::vector<std::pair<const RecordingState*, uint32_t>> ids;

  // Returns the recording's id, and removes it: each id serves once. Returns 0 for a recording without an id.
  uint32_t consume_id(const RecordingState* recording) {
    for (auto& [of, id] : ids)
      if (of == recording) return std::exchange(id, 0);
    return 0;
  }
};

void post(const char* op, const Tensor& given, const Link& link, uint32_t tag);
Tensor fetch(const char* op, const Link& link, uint32_t tag, Device device);
void post_none(const char* op, const Link& link, uint32_t tag) {
  MessageWork::send(link.message(op, tag), internal::header_of(Tensor()), Tensor())->detach(*link.world());
}

// The node of a message.
class RemoteNode : public autograd::Node {
 public:
  RemoteNode(const char* op, Link link, Answers answers)
      : Node(op, {.required = true}), link_(std::move(link)), answers_(std::move(answers)) {}

  void drop(std::span<const char>) final {
    link_.group = Group();  // a tensor may keep this node alive, but not the job
  }

 protected:
  Link link_;
  Answers answers_;
};

// The node of a message that was sent: waits for the message's gradient.
class SentNode final : public RemoteNode {
 public:
  SentNode(Link link, Answers answers, Device device)
      : RemoteNode("remote_send", std::move(link), std::move(answers)), device_(device) {}

  void run(const autograd::RuleArgs& args) override {
    const uint32_t id = answers_.consume_id(args.ending);
    if (!id) return;
    Tensor dx = fetch("remote_send", link_, answer_tag(id), device_);
    if (args.needs[0]) args.dxs[0] = std::move(dx);
  }
  // The backward does not run this node, but the peer answers anyway: receives the answer and discards it.
  void skipped(const RecordingState& recording, std::exception_ptr error) noexcept override {
    internal::report_backward_failure(link_.world(), error);
    const uint32_t id = answers_.consume_id(&recording);
    if (!id || link_.world()->membership->failed()) return;
    try {
      auto nowhere = std::make_shared<std::vector<std::byte>>();
      MessageWork::receive_bytes(link_.message("remote_send", answer_tag(id)), [nowhere](int,
                                                                                         const MessageHeader&,
                                                                                         size_t bytes) {
        nowhere->resize(bytes);
        return nowhere->data();
      })->detach(*link_.world());
    } catch (...) {  // the job has failed
    }
  }

 private:
  const Device device_;
};

// The node of a message that was received: answers it.
class ReceivedNode final : public RemoteNode {
 public:
  ReceivedNode(Link link, Answers answers) : RemoteNode("remote_recv", std::move(link), std::move(answers)) {}

  void run(const autograd::RuleArgs& args) override {
    const uint32_t id = answers_.consume_id(args.ending);
    if (!id) return;  // the recording goes on: gradients of grad(ys, xs) stop here
    if (args.dys[0].defined())
      post("remote_recv", args.dys[0], link_, answer_tag(id));
    else
      post_none("remote_recv", link_, answer_tag(id));
  }
  void skipped(const RecordingState& recording, std::exception_ptr error) noexcept override {
    internal::report_backward_failure(link_.world(), error);
    const uint32_t id = answers_.consume_id(&recording);
    if (!id || error || link_.world()->membership->failed()) return;
    try {
      post_none("remote_recv", link_, answer_tag(id));
    } catch (...) {  // the job has failed
    }
  }
};

// Sends `given`, without waiting for delivery. If recordings follow it, the header lists their positions
// (`wants`, a bit mask over the open recordings) and the first of their answers' ids.
void post(const char* op, const Tensor& given, const Link& link, uint32_t tag) {
  internal::check_has_data(op, "x", given);
  const std::vector<RecordingState*> open = open_now(op);
  const Tensor x = given.is_channels_last() ? given : contiguous(given);
  Recorder recorder(op, x);
  const bool followed = recorder && is_floating(x.dtype());

  MessageHeader header = internal::header_of(x);
  Answers answers;
  if (followed) {
    header.open = static_cast<uint32_t>(open.size());
    header.id =
        link.group.state().last_remote_id.fetch_add(static_cast<uint32_t>(recorder.recordings().size())) + 1;
    for (size_t i = 0; i < open.size(); ++i) {
      if (std::find(recorder.recordings().begin(), recorder.recordings().end(), open[i]) ==
          recorder.recordings().end())
        continue;
      header.wants |= uint64_t{1} << i;
      answers.ids.emplace_back(open[i], header.id + static_cast<uint32_t>(answers.ids.size()));
    }
  }
  // A tracked tensor needs no copy: nothing may write to it until the backward, when the message has arrived.
  MessageWork::send(link.message(op, tag), header, followed ? detach(x) : raw::clone(x))
      ->detach(*link.world());
  if (followed)
    recorder.attach(Ref<autograd::Node>(new SentNode(link, std::move(answers), x.device())), {},
                    {recorder.edge_to(x)});
}

// Receives a tensor; undefined for "none". The i-th open recording of this rank follows it if the sender's
// i-th open recording does. Without open recordings, answers "none" at once.
Tensor fetch(const char* op, const Link& link, uint32_t tag, Device device) {
  const std::vector<RecordingState*> open = open_now(op);
  const auto check = [op](int source, const MessageHeader& header, size_t) {
    if (header.open > 64) throw MismatchError(op, source, "rank ", source, " sent a malformed message");
  };
  const Ref<MessageWork> message = MessageWork::receive(link.message(op, tag), check, device);
  message->wait({});
  const MessageHeader& header = message->header();
  Tensor y = message->tensor();
  if (!header.wants) return y;
  if (!open.empty() && open.size() != header.open) {
    internal::World& world = *link.world();
    throw_failure(op, world.membership->report(
                          {Failure::Kind::kMismatch, link.peer,
                           concat("rank ", link.peer, " sent ", describe(header), " with ", header.open,
                                  " open recordings, rank ", world.rank, " received it with ", open.size(),
                                  ": both must have recorded alike for the gradient to find its way back")}));
  }
  Answers answers;
  std::vector<RecordingState*> following;
  for (uint32_t i = 0, id = header.id; i < header.open; ++i) {
    if (!(header.wants >> i & 1)) continue;
    if (open.empty())
      post_none(op, link, answer_tag(id));
    else
      following.push_back(open[i]), answers.ids.emplace_back(open[i], id);
    ++id;
  }
  Recorder recorder(op, following);
  if (recorder) recorder.attach(Ref<autograd::Node>(new ReceivedNode(link, std::move(answers))), {&y, 1}, {});
  return y;
}

}  // namespace

void remote_send(const Tensor& x, const RemoteSendOptions& options) {
  post("remote_send", x, checked_link("remote_send", options.group, options.dest_rank, options.timeout),
       kMessageTag);
}

Tensor remote_recv(const RemoteRecvOptions& options) {
  const char* op = "remote_recv";
  internal::check_payload_device(op, options.device);
  return fetch(op, checked_link(op, options.group, options.src_rank, options.timeout), kMessageTag,
               options.device);
}

}  // namespace gradus::dist
