// Mailbox: nonblocking point-to-point messages whose tag is computed from the address. The transport's
// background thread makes them progress.
#include "gradus/distributed/group/mailbox.h"

#include <algorithm>
#include <limits>

#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/internal/message_work.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist::internal {

// Note [Mailboxes]
// A message's tag is a number made from its address without the step (Mailbox::number), so the transport
// finds the receive for a message. Messages with one tag keep their order: those of the next step arrive
// after those of this step. A message that no receive matches stays in its sender's ring buffer, or moves to
// the heap when a receive matches a message behind it. So receives in any order complete.

constexpr const char* kOp = "pipeline";

std::string to_string(const Address& a) {
  return concat(a.gradient ? "gradient of input " : "input ", a.slot, " of stage ", a.stage, ", micro-batch ",
                a.micro_batch, ", step ", a.step);
}

Mailbox::Mailbox(const Group& group, AddressLimits limits) : group_(resolved(group)), limits_(limits) {
  constexpr int kMaxLimit = 1 << 16;
  group_.state().check_member(kOp);
  if (limits.stages < 1 || limits.stages > kMaxLimit || limits.slots < 1 || limits.slots > kMaxLimit)
    throw ValueError(kOp, "expected 1 to ", kMaxLimit, " stages and slots, got ", limits.stages, " and ",
                     limits.slots);
  if (group_.size() > 1) group_.state().world()->transport->progress_in_background();
}

Mailbox::~Mailbox() = default;

void Mailbox::set_program(const std::string& text) {
  program_ = text;
  program_number_ = std::hash<std::string>()(text);
}

// Returns ((micro_batch * stages + stage) * slots + slot) * 2 + gradient, the tag.
// Errors: ValueError for an address outside of AddressLimits, or a number that exceeds 32 bits.
uint32_t Mailbox::number(const Address& a) const {
  if (a.stage < 0 || a.stage >= limits_.stages || a.slot < 0 || a.slot >= limits_.slots || a.micro_batch < 0)
    throw ValueError(kOp, "no room for ", to_string(a), ": there are ", limits_.stages, " stages with ",
                     limits_.slots, " inputs");
  const uint64_t index =
      uint64_t(a.micro_batch) * uint64_t(limits_.stages) + uint64_t(a.stage);  // below 2^48
  const uint64_t max = std::numeric_limits<uint32_t>::max();
  if (index > max / 2 / uint64_t(limits_.slots) - 1)
    throw ValueError(kOp, "too many micro-batches for ", limits_.stages, " stages with ", limits_.slots,
                     " inputs: number ", a.micro_batch);
  return uint32_t((index * uint64_t(limits_.slots) + uint64_t(a.slot)) * 2 + a.gradient);
}

// `member` is an index in the group.
Message Mailbox::message(int member, uint32_t number) const {
  Message message = make_message(kOp, group_, get_global_rank(group_, member), "rank", number, {});
  message.channel = Channel::kMailbox;
  return message;
}

void Mailbox::send(int to, const Address& address, const Parcel& parcel) {
  const Message message = this->message(to, number(address));
  Tensor x = parcel.tensor;
  if (x.defined()) {
    check_has_data(kOp, "x", x);
    x = x.is_channels_last() ? detach(x) : raw::contiguous(detach(x));
  }
  MessageHeader header = header_of(x);
  header.step = address.step;
  header.program = program_number_;
  header.parcels = parcel.parcels;
  header.wants_gradient = parcel.wants_gradient;
  std::ranges::copy(parcel.generator, header.generator);
  MessageWork::send(message, header, x)->detach(*group_.state().world());
}

// Returns the posted receive for the address; posts it if there is none. The receive accepts only a message
// of this rank's program and of the address's step. A receive is found by address without the step, so
// receive() this step's message before posting the receive of the next step's.
Ref<MessageWork> Mailbox::find_or_post(int from, const Address& address, Device device) {
  check_payload_device(kOp, device);
  const uint32_t n = number(address);
  const auto found = receives_.find({from, n});
  if (found != receives_.end()) return found->second;
  const Message message = this->message(from, n);
  const auto check = [address, receiver = group_.state().world()->rank, program = program_,
                      number = program_number_](int source, const MessageHeader& header, size_t) {
    if (header.program != number)
      throw MismatchError(kOp, source, "rank ", source, " runs another step than rank ", receiver,
                          ", which runs ", program, " and waits for ", to_string(address));
    if (header.step != address.step)
      throw MismatchError(kOp, source, "rank ", source, " is at step ", header.step, ", and rank ", receiver,
                          " waits for ", to_string(address));
    if (header.parcels < 0) throw MismatchError(kOp, source, "rank ", source, " sent a malformed message");
  };
  return receives_.emplace(std::pair(from, n), MessageWork::receive(message, check, device)).first->second;
}

void Mailbox::post_receive(int from, const Address& address, Device device) {
  find_or_post(from, address, device);
}

bool Mailbox::has_arrived(int from, const Address& address) {
  const auto found = receives_.find({from, number(address)});
  return found != receives_.end() && found->second->is_completed();
}

Parcel Mailbox::receive(int from, const Address& address, const std::string& doing, Device device) {
  const Ref<MessageWork> work = find_or_post(from, address, device);
  work->wait_from_now(
      concat(doing, ", for ", to_string(address), " from rank ", get_global_rank(group_, from)));
  receives_.erase({from, number(address)});
  const MessageHeader& header = work->header();
  return {.tensor = work->tensor(),
          .parcels = header.parcels,
          .wants_gradient = header.wants_gradient != 0,
          .generator = {header.generator[0], header.generator[1]}};
}

}  // namespace gradus::dist::internal
