#include "gradus/distributed/store/store_table.h"

#include <algorithm>

namespace gradus::dist::internal {
namespace {

std::string answer(int64_t number, std::vector<std::string_view> values = {}) {
  return encode({MessageType::kAnswer, {number}, std::move(values)});
}

}  // namespace

bool StoreTable::request(Client client, const Message& message, TimePoint now, Answers* answers) {
  const auto& texts = message.texts;
  const auto reply = [&](std::string frame) { answers->emplace_back(client, std::move(frame)); };
  try {
    switch (message.type) {
      case MessageType::kSet:
        keys_.set(texts[0], texts[1]);
        reply(answer(0));
        wake(texts[0], answers);
        return true;
      case MessageType::kAdd: {
        const int64_t sum = keys_.add(texts[0], message.numbers[0]);
        reply(answer(sum));
        wake(texts[0], answers);
        return true;
      }
      case MessageType::kCompareSet:
        reply(answer(0, {keys_.compare_set(texts[0], texts[1], texts[2])}));
        wake(texts[0], answers);
        return true;
      case MessageType::kAppend: {
        const int64_t length = keys_.append(texts[0], texts[1]);
        reply(answer(length));
        wake(texts[0], answers);
        return true;
      }
      case MessageType::kCheck:
        reply(answer(
            std::all_of(texts.begin(), texts.end(), [&](auto key) { return keys_.find(key) != nullptr; })));
        return true;
      case MessageType::kDelete:
        reply(answer(keys_.erase(texts[0])));
        return true;
      case MessageType::kNumKeys:
        reply(answer(static_cast<int64_t>(keys_.size())));
        return true;
      case MessageType::kGet:
      case MessageType::kPop:
      case MessageType::kWait:
        wait(client, message, now, answers);
        return true;
      default:
        return false;
    }
  } catch (const StoreError& error) {
    // Without "[op] ", which the client adds again.
    reply(encode({MessageType::kInvalid, {}, {text_of(error)}}));
    return true;
  }
}

void StoreTable::wait(Client client, const Message& message, TimePoint now, Answers* answers) {
  for (const auto key : message.texts) check_key("wait", key);
  const auto timeout =
      std::clamp<int64_t>(message.numbers[0], 0, Milliseconds(std::chrono::hours(24 * 365)).count());
  Waiter waiter{.type = message.type,
                .keys = {message.texts.begin(), message.texts.end()},
                .deadline = now + Milliseconds(timeout)};
  const TimePoint deadline = waiter.deadline;
  if (advance(client, waiter, answers)) return;
  waiters_.emplace(client, std::move(waiter));
  deadlines_.emplace(deadline, client);
}

bool StoreTable::advance(Client client, Waiter& waiter, Answers* answers) {
  while (waiter.next < waiter.keys.size() && keys_.find(waiter.keys[waiter.next]) != nullptr) ++waiter.next;
  if (waiter.next < waiter.keys.size()) {
    by_key_[waiter.keys[waiter.next]].push_back(client);
    return false;
  }
  if (waiter.type == MessageType::kWait) {
    answers->emplace_back(client, answer(0));
    return true;
  }
  const std::string& key = waiter.keys[0];
  answers->emplace_back(client, answer(0, {*keys_.find(key)}));
  if (waiter.type == MessageType::kPop) keys_.erase(key);
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

void StoreTable::forget(Client client) {
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
    forget(client);
  }
}

std::optional<TimePoint> StoreTable::next_deadline() const {
  if (deadlines_.empty()) return {};
  return deadlines_.begin()->first;
}

}  // namespace gradus::dist::internal
