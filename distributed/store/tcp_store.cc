// TcpStore: the client of a job's key-value store. The server (StoreServer) runs in the launcher or in rank 0.
// Each request gets one answer. Thread-safe.
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

// kAnswerLimit: maximum time for the answer to a request that does not wait for keys. kSlack: additional time, in
// which the server's own answer that a request has timed out can still arrive.
constexpr Milliseconds kAnswerLimit{30'000}, kSlack{1'500};
// Maximum timeout of a request that waits for keys (get, pop, wait); a longer one is shortened to this.
constexpr Milliseconds kMaxWait = std::chrono::hours(24 * 365);
// Maximum pause between two parts of one answer. An answer that has begun may end after the request's deadline.
constexpr Milliseconds kPatience{10'000};
// Time limit of the connection that throw_gone makes to find out why an earlier connection broke.
constexpr Milliseconds kProbeLimit{1'000};
// Maximum number of unused connections that are kept open for later calls.
constexpr size_t kIdleConnections = 8;

// Each call uses a connection of its own, so that a call that waits for a key does not block the others. After an
// answer the connection becomes idle, and a later call uses it again. After an error it is closed.
class TcpStore final : public Store {
 public:
  TcpStore(const StoreAddress& address, const Deadline& deadline) : address_(address) {
    idle_.push_back(StoreConnection::open("connect_tcp_store", address_, who(), deadline));
  }

  StoreAnswer execute(const StoreRequest& request) override {
    const char* const op = request.name();
    if (request.keys.size() > internal::kMaxListed)
      throw StoreError(op, -1, request.keys.size(), " keys at once; at most ", internal::kMaxListed,
                       " are allowed");
    for (const std::string_view key : request.keys) internal::check_key(op, key);
    for (const std::string_view value : request.values)
      internal::check_value(op, request.keys[0], value.size());
    const Milliseconds limit =
        request.waits() ? std::min(request.timeout, kMaxWait) : std::min(default_timeout(), kAnswerLimit);
    const Deadline deadline = Deadline::after(limit + kSlack);
    StoreConnection connection = take_connection(op, deadline);
    std::string why;
    Io io = connection.send(internal::encode(internal::to_message(request)), deadline, &why);
    Message answer{MessageType::kInvalid, {}, {}};
    if (io == Io::kDone) io = connection.receive(&answer, deadline, &why, kPatience);
    if (io == Io::kTimeout)
      throw ConnectionError(op, -1, "the store at ", address_text(), " did not answer within ",
                            deadline.timeout().count(), " ms");
    if (io == Io::kClosed) throw_gone(op, why);
    // answer.texts point into the connection's buffer, so they are copied before another call uses the connection.
    const std::vector<std::string> texts(answer.texts.begin(), answer.texts.end());
    return_connection(std::move(connection));
    switch (answer.type) {
      case MessageType::kAnswer:
        return {answer.numbers[0], texts[0]};
      case MessageType::kTimedOut:
        internal::throw_missing(op, texts, request.timeout);
      case MessageType::kInvalid:
        throw StoreError(op, -1, texts.at(0));
      default:
        throw ConnectionError(op, -1, "the store at ", address_text(), " does not stick to the protocol");
    }
  }

 private:
  // Returns the greeting that identifies this client to the server.
  internal::Hello who() const { return {.attempt = address_.attempt}; }

  void return_connection(StoreConnection connection) {
    std::lock_guard lock(mutex_);
    if (idle_.size() < kIdleConnections) idle_.push_back(std::move(connection));
  }

  // Returns an idle connection, or a new one.
  // Errors: as reach.
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

  std::string address_text() const { return concat(address_.host, ':', address_.port); }

  // Makes a further connection. Tries once, because a server that has accepted a connection before only becomes
  // unreachable when its process ends or the network fails. `why` is the reason for the error's text; "": the
  // reason why this connection fails.
  // Errors: ConnectionError with the server's refusal, or that the store is gone.
  StoreConnection reach(const char* op, const Deadline& deadline, const std::string& why) {
    try {
      return StoreConnection::open(op, address_, who(), deadline, /*retry=*/false);
    } catch (const ConnectionError& error) {
      if (error.reason() != ConnectionError::Reason::kUnreachable) throw;
      throw ConnectionError(op, -1, "the store at ", address_text(),
                            " is gone: its host (the launcher, or rank 0) has ended or cannot be reached (",
                            why.empty() ? internal::text_of(error) : why, ")");
    }
  }

  // Throws the ConnectionError for a connection that broke, `why` being the reason that its socket gave. Makes a
  // new connection to choose the error: the store is gone, the server refuses this client (the attempt is over),
  // or, if the new connection succeeds, only the old connection broke.
  [[noreturn]] void throw_gone(const char* op, const std::string& why) {
    reach(op, Deadline::after(kProbeLimit), why);
    throw ConnectionError(op, -1, "the connection to the store at ", address_text(), " broke: ", why);
  }

  const StoreAddress address_;
  std::mutex mutex_;  // guards idle_
  std::vector<StoreConnection> idle_;
};

}  // namespace

std::shared_ptr<Store> connect_tcp_store(const StoreAddress& address, const Deadline& deadline) {
  return std::make_shared<TcpStore>(address, deadline);
}

}  // namespace gradus::dist
