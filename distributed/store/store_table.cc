// StoreTable: executes the requests of a key-value store's clients. A get, pop or wait for absent keys
// becomes a Waiter, which is queued at its first missing key (by_key_); a request that sets this key
// re-examines the queue in order of arrival. Single-threaded: the server's loop passes messages and the
// current time.
#include "gradus/distributed/store/store_table.h"

namespace gradus::dist::internal {

bool StoreTable::request(Client client, const Message& message, TimePoint now, Answers* answers) {
  const std::optional<StoreRequest> request = parse_request(message);
  if (!request) return false;
  try {
    for (const std::string_view key : request->keys) check_key(request->name(), key);
    if (request->waits()) {
      const TimePoint deadline = now + request->timeout;
      Waiter waiter{
          .op = request->op, .keys = {request->keys.begin(), request->keys.end()}, .deadline = deadline};
      if (advance(client, waiter, answers)) return true;
      waiters_.emplace(client, std::move(waiter));
      deadlines_.emplace(deadline, client);
    } else {
      answers->emplace_back(client, encode(keys_.execute(*request)));
      if (request->changes_key()) wake(request->keys[0], answers);
    }
  } catch (const StoreError& error) {
    // Without "[op] ", which the client adds again.
    answers->emplace_back(client, encode({MessageType::kInvalid, {}, {text_of(error)}}));
  }
  return true;
}

bool StoreTable::advance(Client client, Waiter& waiter, Answers* answers) {
  while (waiter.next < waiter.keys.size() && keys_.find(waiter.keys[waiter.next]) != nullptr) ++waiter.next;
  if (waiter.next < waiter.keys.size()) {
    by_key_[waiter.keys[waiter.next]].push_back(client);
    return false;
  }
  answers->emplace_back(
      client, encode(keys_.execute({.op = waiter.op, .keys = {waiter.keys.begin(), waiter.keys.end()}})));
  return true;
}

void StoreTable::wake(std::string_view key, Answers* answers) {
  const auto it = by_key_.find(key);
  if (it == by_key_.end() || keys_.find(key) == nullptr) return;
  // A client that must wait again, because another one popped the key, joins the new list.
  const std::vector<Client> woken = std::move(it->second);
  by_key_.erase(it);
  for (const Client client : woken) {
    const auto waiter = waiters_.find(client);
    if (!advance(client, waiter->second, answers)) continue;
    deadlines_.erase({waiter->second.deadline, client});
    waiters_.erase(waiter);
  }
}

void StoreTable::cancel_wait(Client client) {
  const auto it = waiters_.find(client);
  if (it == waiters_.end()) return;
  const auto queue = by_key_.find(it->second.keys[it->second.next]);
  std::erase(queue->second, client);
  if (queue->second.empty()) by_key_.erase(queue);
  deadlines_.erase({it->second.deadline, client});
  waiters_.erase(it);
}

void StoreTable::expire(TimePoint now, Answers* answers) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Client client = deadlines_.begin()->second;
    const Waiter& waiter = waiters_.at(client);
    Message late{MessageType::kTimedOut, {}, {}};
    for (const auto& key : waiter.keys)
      if (keys_.find(key) == nullptr) late.texts.push_back(key);
    answers->emplace_back(client, encode(late));
    cancel_wait(client);
  }
}

std::optional<TimePoint> StoreTable::next_deadline() const {
  if (deadlines_.empty()) return {};
  return deadlines_.begin()->first;
}

}  // namespace gradus::dist::internal
