#include "gradus/distributed/store/tcp_store.h"

#include <mutex>
#include <utility>
#include <vector>

#include "gradus/distributed/base/key_table.h"
#include "gradus/distributed/store/internal/store_connection.h"

namespace gradus::dist {
namespace {

using internal::Io;
using internal::Message;
using internal::MessageType;
using internal::StoreConnection;

// kAnswerLimit: the limit of requests that the server answers at once. kSlack: how much later than the
// request's own timeout an answer may come.
constexpr Milliseconds kAnswerLimit{30'000}, kSlack{1'500};
constexpr Milliseconds kLongestWait = std::chrono::hours(24 * 365);
// The longest pause between the parts of a long answer.
constexpr Milliseconds kPatience{10'000};
// The time limit for finding out why a connection broke.
constexpr Milliseconds kLookLimit{1'000};
constexpr size_t kIdleConnections = 8;

// Each call has a connection of its own, so that a wait holds up no other call.
class TcpStore final : public Store {
 public:
  TcpStore(const StoreAddress& address, const Deadline& deadline) : address_(address) {
    idle_.push_back(StoreConnection::open("connect_tcp_store", address_, who(), deadline));
  }

  void set(std::string_view key, std::string_view value) override {
    internal::check_value("set", key, value.size());
    call("set", {MessageType::kSet, {}, {key, value}});
  }
  std::string get(std::string_view key, std::optional<Milliseconds> timeout) override {
    return wait_for("get", MessageType::kGet, {key}, timeout).value;
  }
  std::string pop(std::string_view key, std::optional<Milliseconds> timeout) override {
    return wait_for("pop", MessageType::kPop, {key}, timeout).value;
  }
  int64_t add(std::string_view key, int64_t amount) override {
    return call("add", {MessageType::kAdd, {amount}, {key}}).number;
  }
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired) override {
    internal::check_value("compare_set", key, expected.size());
    internal::check_value("compare_set", key, desired.size());
    return call("compare_set", {MessageType::kCompareSet, {}, {key, expected, desired}}).value;
  }
  int64_t append(std::string_view key, std::string_view value) override {
    internal::check_value("append", key, value.size());
    return call("append", {MessageType::kAppend, {}, {key, value}}).number;
  }
  void wait(const std::vector<std::string>& keys, std::optional<Milliseconds> timeout) override {
    wait_for("wait", MessageType::kWait, {keys.begin(), keys.end()}, timeout);
  }
  bool check(const std::vector<std::string>& keys) override {
    return call("check", {MessageType::kCheck, {}, {keys.begin(), keys.end()}}).number != 0;
  }
  bool delete_key(std::string_view key) override {
    return call("delete_key", {MessageType::kDelete, {}, {key}}).number != 0;
  }
  int64_t num_keys() override { return call("num_keys", {MessageType::kNumKeys, {}, {}}).number; }

 private:
  struct Answer {
    int64_t number = 0;
    std::string value;
  };

  internal::Hello who() const { return {.attempt = address_.attempt}; }

  Answer wait_for(const char* op, MessageType type, std::vector<std::string_view> keys,
                  std::optional<Milliseconds> timeout) {
    const Milliseconds limit = std::min(timeout.value_or(default_timeout()), kLongestWait);
    return call(op, {type, {limit.count()}, std::move(keys)}, limit, limit);
  }

  Answer call(const char* op, const Message& request) {
    return call(op, request, {}, std::min(default_timeout(), kAnswerLimit));
  }

  // `limit`: how long the server's answer may take. `timeout`: the caller's timeout, for messages.
  Answer call(const char* op, const Message& request, Milliseconds timeout, Milliseconds limit) {
    if (request.texts.size() > internal::kMaxListed)
      throw StoreError(op, -1, request.texts.size(), " keys at once; at most ", internal::kMaxListed,
                       " are allowed");
    if (!request.texts.empty() && request.type != MessageType::kWait && request.type != MessageType::kCheck)
      internal::check_key(op, request.texts[0]);

    const Deadline deadline = Deadline::after(limit + kSlack);
    StoreConnection connection = take_connection(op, deadline);
    std::string why;
    Io io = connection.send(encode(request), deadline, &why);
    Message answer{MessageType::kInvalid, {}, {}};
    if (io == Io::kDone) io = connection.receive(&answer, deadline, &why, kPatience);
    if (io == Io::kTimeout)
      throw ConnectionError(op, -1, "the store at ", place(), " did not answer within ",
                            deadline.timeout().count(), " ms");
    if (io == Io::kClosed) throw_gone(op, why);
    return finish(op, std::move(connection), answer, timeout);
  }

  // The answer's texts lie in the connection, so the connection is given back last.
  Answer finish(const char* op, StoreConnection connection, const Message& message, Milliseconds timeout) {
    Answer answer;
    std::vector<std::string> texts(message.texts.begin(), message.texts.end());
    {
      std::lock_guard lock(mutex_);
      if (idle_.size() < kIdleConnections) idle_.push_back(std::move(connection));
    }
    switch (message.type) {
      case MessageType::kAnswer:
        answer.number = message.numbers[0];
        if (!texts.empty()) answer.value = std::move(texts[0]);
        return answer;
      case MessageType::kTimedOut:
        internal::throw_missing(op, texts, timeout);
      case MessageType::kInvalid:
        throw StoreError(op, -1, texts.at(0));
      default:
        throw ConnectionError(op, -1, "the store at ", place(), " does not stick to the protocol");
    }
  }

  StoreConnection take_connection(const char* op, const Deadline& deadline) {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        StoreConnection connection = std::move(idle_.back());
        idle_.pop_back();
        return connection;
      }
    }
    return reach(op, deadline, "");
  }

  std::string place() const { return concat(address_.host, ':', address_.port); }

  // Connects to a server that was there before.
  // Errors: ConnectionError with the server's refusal, or saying that it is gone and why.
  StoreConnection reach(const char* op, const Deadline& deadline, const std::string& why) {
    try {
      return StoreConnection::open(op, address_, who(), deadline, /*retry=*/false);
    } catch (const ConnectionError& error) {
      if (error.reason() != ConnectionError::Reason::kUnreachable) throw;
      throw ConnectionError(op, -1, "the store at ", place(),
                            " is gone: its host (the launcher, or rank 0) has ended or cannot be reached (",
                            why.empty() ? internal::text_of(error) : why, ")");
    }
  }

  // Tries a new connection, which shows why the old one ended.
  [[noreturn]] void throw_gone(const char* op, const std::string& why) {
    reach(op, Deadline::after(kLookLimit), why);
    throw ConnectionError(op, -1, "the connection to the store at ", place(), " broke: ", why);
  }

  const StoreAddress address_;
  std::mutex mutex_;  // of idle_
  std::vector<StoreConnection> idle_;
};

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, const Deadline& deadline) {
  return std::make_shared<TcpStore>(address, deadline);
}

}  // namespace gradus::dist
