// Mailbox: tensors between the ranks of a group, each under an address. They may be sent and taken in any
// order. Shape, dtype and layout travel with them.
//
//   mailbox.post_receive(0, address);                  // before it is needed: it arrives while this rank computes
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

// What a message is: a tensor that goes into a stage, or the gradient of a tensor that came out of it.
struct Address {
  uint64_t step = 0;  // is checked: a message of another step is an error
  int stage = 0;      // the stage that takes the message
  int micro_batch = 0;
  int slot = 0;  // which of the tensors that the stage takes
  bool gradient = false;
  auto operator<=>(const Address&) const = default;
};
std::string to_string(const Address& address);  // "input 1 of stage 2, micro-batch 0, step 7"

struct Parcel {
  Tensor tensor;                           // undefined: none
  int parcels = 1;                         // how many the sender sends for this stage and micro-batch
  bool wants_gradient = false;             // the sender waits for this tensor's gradient
  std::array<uint64_t, 2> generator = {};  // state of the generator from which the next stage draws
};

// For one thread. Sends never wait. What was sent lives until it has arrived.
class Mailbox {
 public:
  // How many stages and slots an address may name.
  struct AddressLimits {
    int stages = 1, slots = 1;
  };
  // Errors: ValueError if this rank is no member, or unless stages and slots are 1 to 65,536.
  Mailbox(const Group& group, AddressLimits limits);
  ~Mailbox();  // waits for nobody; drops what has not been taken

  // Says what this rank runs from now on: a number that all ranks must have, made from `text`, which errors
  // print. A message of a rank that runs something else is an error.
  void set_program(const std::string& text);

  // Sends to the member number `to` of the group. The tensor must not be written to afterward.
  // Errors: ValueError for this rank itself, or an address without room; DeviceError off host memory;
  // the failure of the job.
  void send(int to, const Address& address, const Parcel& parcel);
  // Makes room for the message from member `from`: it comes in while this rank computes. A second call for
  // the same message does nothing.
  // Errors: as for send.
  void post_receive(int from, const Address& address, Device device = kCPU);
  // Returns the message when it has come. `doing` tells other ranks for what this rank waits.
  // Errors: as for send; MismatchError on all ranks for a message of another step or program; PeerError if
  // its sender is gone; TimeoutError.
  Parcel receive(int from, const Address& address, const std::string& doing, Device device = kCPU);
  // Returns whether receive would not wait.
  bool has_arrived(int from, const Address& address);

 private:
  struct Expected;
  uint32_t number(const Address& address) const;
  Message message(int member, uint32_t number) const;
  Expected& expected(int from, const Address& address, Device device);

  Group group_;
  AddressLimits limits_;
  std::string program_;
  uint64_t program_number_ = 0;
  std::map<std::pair<int, uint32_t>, std::unique_ptr<Expected>> expected_;  // by member and number
};

}  // namespace gradus::dist::internal
