// StoreTable: the keys of a store that a server hosts, and the clients that wait for keys. StoreTable has no
// sockets and no threads: the caller passes messages (store_protocol.h) and the time. Not thread-safe.
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

// Launchers communicate through keys with this prefix, which outlive attempts (runs of all ranks).
inline constexpr std::string_view kLauncherPrefix = "launcher/";

class StoreTable {
 public:
  using Client = uint64_t;
  // Frames to send, in order.
  using Answers = std::vector<std::pair<Client, std::string>>;

  // Executes a request. Adds to `answers` the client's answer, unless the client has to wait, and those of
  // waiting clients whose keys are now set. A waiting client must send nothing. Returns false for a message
  // that is no request. `message` is a result of parse(), so its counts are right.
  bool request(Client client, const Message& message, TimePoint now, Answers* answers);
  bool is_waiting(Client client) const { return waiters_.contains(client); }
  // Ends the client's wait, if any, without an answer.
  void cancel_wait(Client client);
  // Answers the clients whose waits have timed out.
  void expire(TimePoint now, Answers* answers);
  std::optional<TimePoint> next_deadline() const;  // nullopt: no client waits
  // Removes all keys except the launchers'.
  void begin_attempt() { keys_.erase_all_except(kLauncherPrefix); }

 private:
  // A client that waits, for one key at a time: the keys before `next` have been found.
  struct Waiter {
    StoreRequest::Op op;
    std::vector<std::string> keys;
    size_t next = 0;
    TimePoint deadline;
  };
  // If all keys exist, adds the answer and returns true. Else queues the client at the first missing key.
  bool advance(Client client, Waiter& waiter, Answers* answers);
  // Advances the clients that wait for the key, in order of arrival.
  void wake(std::string_view key, Answers* answers);

  KeyTable keys_;
  std::map<Client, Waiter> waiters_;
  std::map<std::string, std::vector<Client>, std::less<>> by_key_;  // waiting, by first missing key
  std::set<std::pair<TimePoint, Client>> deadlines_;
};

}  // namespace gradus::dist::internal
