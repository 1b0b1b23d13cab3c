// StoreTable: the keys of a store that a server hosts, and the clients that wait for keys. It has no sockets
// and no threads. The caller passes the time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/store/store_protocol.h"

namespace gradus::dist::internal {

// Keys with this prefix outlive attempts. Launchers tell each other things through them.
inline constexpr std::string_view kLauncherPrefix = "launcher/";

class StoreTable {
 public:
  using Client = uint64_t;
  // Frames to send, in order.
  using Answers = std::vector<std::pair<Client, std::string>>;

  // Executes a request. Adds its answer to `answers`, unless the client has to wait. A client that waits must
  // send nothing else. Returns false for a message that is no request.
  bool request(Client client, const Message& message, TimePoint now, Answers* answers);
  bool is_waiting(Client client) const { return waiters_.contains(client); }
  // Ends a wait without an answer.
  void cancel_wait(Client client);
  // Ends the waits that have timed out.
  void expire(TimePoint now, Answers* answers);
  std::optional<TimePoint> next_deadline() const;
  // Removes all keys except the launchers'.
  void begin_attempt() { keys_.keep_only(kLauncherPrefix); }

 private:
  // A client that waits, for one key at a time: the keys before `next` have been found.
  struct Waiter {
    StoreRequest::Op op;
    std::vector<std::string> keys;
    size_t next = 0;
    TimePoint deadline;
  };
  // If all keys are there, adds the answer and returns true. Otherwise notes the key that the client waits
  // for from now on.
  bool advance(Client client, Waiter& waiter, Answers* answers);
  // Lets the clients that wait for the key go on, in the order in which they came.
  void wake(std::string_view key, Answers* answers);

  KeyTable keys_;
  std::map<Client, Waiter> waiters_;
  std::map<std::string, std::vector<Client>, std::less<>> by_key_;
  std::set<std::pair<TimePoint, Client>> deadlines_;
};

}  // namespace gradus::dist::internal
