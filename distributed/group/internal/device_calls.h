// DeviceCalls: watches a rank's collectives that a DeviceLibrary queues on GPUs. A kernel whose members do not all take
// part runs forever, and so would each wait for it. When the job fails, or a call is not done by its deadline, a thread
// ends all queued calls, and every host wait for a stream that depends on them throws the job's failure.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradus/distributed/group/internal/call_queue.h"
#include "gradus/distributed/health/membership.h"
#include "gradus/distributed/transport/device_collectives.h"
#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Of one rank. Thread-safe.
class DeviceCalls {
 public:
  // A call. `op` is a literal; `text` names the call in errors: "all_reduce #3 of group 'world'". It is queued on
  // `stream`, with calls of all `connections`.
  struct Watched {
    const std::vector<std::shared_ptr<DeviceCollectives>> connections;
    const Stream stream;
    const Deadline deadline;
    const char* const op;
    const std::string text;
    const CallSeries series;
    Event done = {};  // written before is_queued
    std::atomic<bool> is_queued{false};
    TimePoint fails_at = {};  // for the watcher: when an error of the library counts; not set: there is none

    void set_queued(Event event) {
      done = std::move(event);
      is_queued.store(true, std::memory_order_release);
    }
  };

  DeviceCalls(std::shared_ptr<Membership> membership, std::shared_ptr<PostedCalls> posted);
  // Ends calls that are still queued. Does not wait for other ranks.
  ~DeviceCalls();

  // Watches a call that is about to be queued, which counts as a posted one until it is done. If it cannot be queued, the
  // job must fail.
  void watch(std::shared_ptr<Watched> call);
  // Closes a connection when its calls are done and the other members close theirs.
  void retire(std::shared_ptr<DeviceCollectives> collectives);
  // Waits until retired connections are closed, for at most `limit`; less if the job fails.
  void finish_closing(Milliseconds limit);

 private:
  using Connections = std::vector<std::shared_ptr<DeviceCollectives>>;

  void watch_calls();
  void close_connections();
  // Returns whether the call is done.
  bool is_done(Watched& call);
  // Returns the failure that ends the queued calls, or nullopt.
  std::optional<Failure> find_failure(Watched& call);
  void end_all(std::list<std::shared_ptr<Watched>>& calls, const Failure& failure);

  const std::shared_ptr<Membership> membership_;
  const std::shared_ptr<PostedCalls> posted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::list<std::shared_ptr<Watched>> new_calls_;
  Connections retired_;
  std::thread watcher_, closer_;  // a call that closes a connection may wait for what the watcher ends
};

// Lets the allocator know that a stream uses the memory of a tensor, if it is on a GPU.
void record_use(const Tensor& x, const Stream& stream);

}  // namespace gradus::dist::internal
