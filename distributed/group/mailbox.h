// Mailbox: tensor messages between the ranks of a pipeline, matched by an address instead of by order. Shape,
// dtype and layout are sent with the tensor.
//
//   mailbox.post_receive(0, address);            // early: the message arrives while this rank computes
//   mailbox.send(2, next, {.tensor = y});        // returns at once
//   Tensor x = mailbox.receive(0, address, "2F0").tensor;
#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <string>

#include "gradus/distributed/group/group.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

struct Message;
class MessageWork;

// Identifies a message: an input tensor of a pipeline stage, or the gradient of such an input.
struct Address {
  uint64_t step = 0;  // not matched but checked: a message of another step is an error
  int stage = 0;      // the stage whose input it is
  int micro_batch = 0;
  int slot = 0;           // index of the input among the stage's inputs
  bool gradient = false;  // true: the input's gradient, which is sent in the opposite direction
  auto operator<=>(const Address&) const = default;
};
std::string to_string(const Address& address);  // "input 1 of stage 2, micro-batch 0, step 7"

// The content of a message.
struct Parcel {
  Tensor tensor;                           // may be undefined
  int parcels = 1;                         // how many parcels the sender sends for this stage and micro-batch
  bool wants_gradient = false;             // the sender waits for this tensor's gradient
  std::array<uint64_t, 2> generator = {};  // state of the generator from which the next stage draws
};

// Not thread-safe. In all functions, `from` and `to` are indices in the group.
class Mailbox {
 public:
  // The numbers of stages and of slots per stage.
  struct AddressLimits {
    int stages = 1, slots = 1;
  };
  // Errors: ValueError if this rank is no member, or unless stages and slots are 1 to 65,536.
  Mailbox(const Group& group, AddressLimits limits);
  ~Mailbox();  // does not block; drops messages that were not received

  // Sets a description of what the ranks run, such as the pipeline's schedule; for errors. Its hash is sent
  // with each message, and a message with another hash is an error.
  void set_program(const std::string& text);

  // Starts to send and returns; the tensor is kept alive until it has been sent, and must not be written to.
  // Errors: ValueError for this rank itself, or an address beyond the limits; DeviceError for a meta tensor or
  // the meta device; the job's failure.
  void send(int to, const Address& address, const Parcel& parcel);
  // Posts a nonblocking receive (MPI_Irecv) into `device`. A second call for a message does nothing, also
  // with another step: first receive() this step's message.
  // Errors: as for send.
  void post_receive(int from, const Address& address, Device device = kCPU);
  // Blocks until the message arrives and returns it; a copy to a GPU is queued on the current stream. `doing`
  // ("2F0") names the wait in other ranks' errors.
  // `device` counts unless post_receive has chosen one.
  // Errors: as for send; MismatchError on all ranks for a message of another step or program; PeerError if
  // the sender has left the job; TimeoutError.
  Parcel receive(int from, const Address& address, const std::string& doing, Device device = kCPU);
  // Returns whether the message's receive is posted and complete, so that receive() would not block.
  bool has_arrived(int from, const Address& address);

 private:
  uint32_t number(const Address& address) const;  // the tag of the address, without the step
  Message message(int member, uint32_t number) const;
  Ref<MessageWork> find_or_post(int from, const Address& address, Device device);

  Group group_;
  AddressLimits limits_;
  std::string program_;
  uint64_t program_number_ = 0;
  std::map<std::pair<int, uint32_t>, Ref<MessageWork>> receives_;  // by member and number
};

}  // namespace gradus::dist::internal
