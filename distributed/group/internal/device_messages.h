// DeviceMessages: a rank's messages whose data a DeviceLibrary (NCCL) moves from one GPU to another.
//
//   1. The sender of a tensor on a GPU sends the MessageHeader with a DeviceOffer, and no data.
//   2. The rank of the matching receive answers: with a proposal in the IssueOrder if its tensor is on a GPU that the
//      library connects with the sender's, else with 0.
//   3. The sender sends the conclusion: the greater of both ranks' proposals, or the data, copied to host memory.
//   4. Both ranks queue the message on their GPUs in its turn. The first one between two GPUs connects them.
//
// Three threads start when they are first needed. One answers and concludes. It waits for nothing: while another thread
// waits for a turn or connects, proposals of other ranks still become agreed. One waits for turns, connects and queues.
// One copies to host memory, and so waits for GPUs.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "gradus/distributed/group/internal/call_queue.h"
#include "gradus/distributed/group/internal/device_calls.h"
#include "gradus/distributed/group/internal/issue_order.h"
#include "gradus/distributed/transport/transport.h"
#include "gradus/tensor/runtime/stream.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

class World;

// Sent behind a MessageHeader. Trivially copyable.
struct DeviceOffer {
  uint32_t id = 0;  // counts the sender's offers
  int32_t device = 0;
  uint64_t bytes = 0;                  // of the data
  std::array<char, 64> endpoint = {};  // the library's version, '\n', and the GPU's id
};

// A message that was offered, on one of its ranks.
struct DeviceMessage {
  const char* op = "";  // for errors; a literal
  std::string text;     // "recv from rank 1 (tag 0) in group 'world'"
  Milliseconds timeout{0};
  uint32_t group = 0;
  int peer = -1;  // rank in the job
  bool receives = false;
  DeviceOffer offer;
  Device device;  // of this rank
  int32_t peer_device = -1;
  // Whether the data goes from GPU to GPU. The receiver decides, and the sender knows at the conclusion.
  bool by_library = false;
  // What is sent or received on the GPU, after `posted`. Undefined: what `allocate` returns.
  Tensor tensor;
  Event posted;
  std::function<Tensor()> allocate;
  // Host memory, and its owner: of a sender the copy, of a receive where the data goes.
  void* host = nullptr;
  std::shared_ptr<const void> host_owner;

  Ref<Request> sent;        // the offer or the answer
  Ref<Request> conclusion;  // sent or received
  Event done;
  Futex changed;                         // notified when one of these is set:
  std::atomic<bool> is_answered{false};  // of a sender
  // `conclusion` and `by_library` are written; the former may not have arrived.
  std::atomic<bool> is_concluded{false};
  std::atomic<bool> is_queued{false};  // `tensor` and `done` are written

  // Of a sender: blocks until the receiver answers or leaves the job. Returns whether the receiver has left without an
  // answer; false if the wait ends by its limits.
  bool is_abandoned(const WaitLimits& limits);
  // Returns whether the data has arrived or was sent, or is queued on the GPU. Errors: those of Request::done().
  bool has_ended();
  // Blocks until then. Errors: those of Transport::wait.
  void wait(Transport& transport, const WaitLimits& limits);
};

// Thread-safe.
class DeviceMessages : public std::enable_shared_from_this<DeviceMessages> {
 public:
  // `world` must outlive stop().
  explicit DeviceMessages(World& world);
  // Ends the threads and drops open messages. Does not wait for other ranks. Later calls have no effect.
  void stop();
  // Closes the connections.
  void retire();

  // Returns what a DeviceOffer says about a GPU of this rank; empty if the library cannot be used.
  std::string endpoint(const char* op, Device device);
  // Sends `header`, with an offer that it completes. Returns the receive of the answer.
  Ref<Request> send(const std::shared_ptr<DeviceMessage>& message, Tag tag,
                    std::span<const std::byte> header);
  // Returns whether the library connects the sender's GPU with a GPU of this rank, of which `endpoint` was called.
  bool connects(const DeviceOffer& offer, Device device);
  // Answers the offer that a receive has matched. May be called with the transport's lock held.
  void answer(const std::shared_ptr<DeviceMessage>& message);
  // Reports an error of a message to the job. May be called with the transport's lock held.
  void report(const char* op, const MismatchError& error);

 private:
  // A message of both ranks' GPUs, from this rank's proposal until it is queued.
  struct Open {
    Open(std::shared_ptr<DeviceMessage> m, IssueOrder& order) : message(std::move(m)), turn(order) {}
    const std::shared_ptr<DeviceMessage> message;
    IssueOrder::Turn turn;
    bool is_agreed = false;
    std::string connection_id;  // for the first message between two GPUs
  };
  struct Threads {
    CallQueue answers, copies, turns;
  };
  struct Answer {
    uint64_t proposed = 0;  // 0: through host memory
    int32_t device = 0;
    int32_t zero = 0;
  };
  using GpuPair = std::tuple<int, int, int>;  // the peer, this rank's device number, the peer's
  struct Connection {
    std::string id;  // that this rank has sent
    std::shared_ptr<DeviceCollectives> collectives;
  };

  void post(CallQueue Threads::*thread, const char* op, std::function<void()> work);
  uint64_t propose(const std::shared_ptr<DeviceMessage>& message, const CallSeries& series);
  void send_answer(const std::shared_ptr<DeviceMessage>& message);
  void conclude(const std::shared_ptr<DeviceMessage>& message, const Answer& answer);
  void agree(const CallSeries& series, uint64_t number, std::string connection_id);
  void send_by_host(DeviceMessage& message);
  void queue_next(const char* op, Milliseconds timeout);
  void queue(const Open& open);
  std::string id_to_send(const char* op, const GpuPair& pair);
  std::shared_ptr<DeviceCollectives> connection(const Call& call, const GpuPair& pair, const std::string& id);
  [[noreturn]] void throw_malformed(const char* op, int source);

  World& world_;
  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<Transport> transport_;
  std::atomic<uint32_t> last_id_{0};
  std::map<int, Stream> copy_streams_;  // by device number; of the thread that copies

  // Guards what follows. Taken with the transport's lock held: no call of the transport under it.
  std::mutex mutex_;
  std::atomic<bool> is_stopped_{false};
  std::map<int, std::string> endpoints_;  // by device number
  std::map<CallSeries, Open> open_;
  std::map<GpuPair, Connection> connections_;
  std::unique_ptr<Threads> threads_;  // null after stop()
};

}  // namespace gradus::dist::internal
