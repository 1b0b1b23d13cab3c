// StoreTable: the keys of a store that a server hosts, and the clients that wait for some. No sockets, no
// threads; time is what the caller says it is.
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

// Keys that outlive attempts begin with this: what launchers tell each other.
inline constexpr std::string_view kLauncherPrefix = "launcher/";

class StoreTable {
 public:
  using Client = uint64_t;
  // Frames to send, in order.
  using Answers = std::vector<std::pair<Client, std::string>>;

  // Executes a request; its answer is among those returned, unless the client has to wait. A client that
  // waits asks nothing else. False: that is no request.
  bool request(Client client, const Message& message, TimePoint now, Answers* answers);
  bool waits(Client client) const { return waiters_.contains(client); }
  // Ends a wait without an answer.
  void forget(Client client);
  // Ends the waits whose time is over.
  void expire(TimePoint now, Answers* answers);
  std::optional<TimePoint> next_deadline() const;
  // Forgets all keys but the launchers'.
  void begin_attempt() { keys_.keep_only(kLauncherPrefix); }
  size_t num_keys() const { return keys_.size(); }

 private:
  // Waits for one key at a time: keys before `next` have been there.
  struct Waiter {
    MessageType type;  // kGet, kPop, kWait
    std::vector<std::string> keys;
    size_t next = 0;
    TimePoint deadline;
  };
  // Sends the answer, if all its keys are there; else says for which one it waits from now on.
  bool advance(Client client, Waiter& waiter, Answers* answers);
  void wait(Client client, const Message& message, TimePoint now, Answers* answers);
  // Tells those who wait for the key that it is there, first come, first served.
  void wake(std::string_view key, Answers* answers);

  KeyTable keys_;
  std::map<Client, Waiter> waiters_;
  std::map<std::string, std::vector<Client>, std::less<>> by_key_;
  std::set<std::pair<TimePoint, Client>> deadlines_;
};

}  // namespace gradus::dist::internal
