// The connections that a rank (TcpMembership) and a launcher (TcpLauncherLink) keep open to the store's
// server for the whole job: membership and failure detection. A thread per connection reads the server's
// messages (failure of the job, ranks that have left, queries) and, for a rank, sends a heartbeat with the
// rank's status every 500 ms. The server takes the end of a connection without kLeave as the death of its
// process. Functions may be called from any thread.
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "gradus/distributed/health/still_threads.h"
#include "gradus/distributed/store/internal/status_wire.h"
#include "gradus/distributed/store/internal/store_connection.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist {
namespace {

using internal::encode;
using internal::Io;
using internal::Message;
using internal::MessageType;
using internal::StoreConnection;

constexpr Milliseconds kHeartbeat{500};
// A rank that reports a timeout first queries the statuses. Both together take less than two seconds. A
// report's answer may come only after the server's grace period.
constexpr Milliseconds kStatusesLimit{400}, kReportLimit{950};
// Covers a lost packet (TCP sends it again after 200 ms). A stopped server delays the end of a rank by this
// much.
constexpr Milliseconds kLeaveLimit{400};

// Descriptors of connections whose end signals the death of this process. A forked child closes its copies
// (atfork handler), or the connections would outlive the process. Never destroyed.
class LifeLines {
 public:
  static void add(int fd) {
    static const int registered =
        pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                       [] {
                         for (const int open : instance().fds_) ::close(open);
                         instance().fds_.clear();
                         instance().mutex_.unlock();
                       });
    (void)registered;
    std::lock_guard lock(instance().mutex_);
    instance().fds_.insert(fd);
  }
  static void remove(int fd) {
    std::lock_guard lock(instance().mutex_);
    instance().fds_.erase(fd);
  }

 private:
  static LifeLines& instance() {
    static auto& instance = *new LifeLines;
    return instance;
  }
  std::mutex mutex_;
  std::set<int> fds_;
};

// A connection with a thread that calls the handlers until the connection ends or the object is destroyed.
class StandingConnection {
 public:
  struct Handlers {
    std::function<bool(const Message&)> message;       // returns whether to send a heartbeat at once
    std::function<void(const std::string& why)> lost;  // the connection ended; always the last call
    std::function<std::string()> heartbeat;            // returns a frame to send every kHeartbeat; null: none
  };

  StandingConnection(StoreConnection connection, Handlers handlers)
      : connection_(std::move(connection)),
        stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        handlers_(std::move(handlers)),
        thread_([this] {
          internal::name_framework_thread("job");
          listen();
        }) {
    LifeLines::add(connection_.fd());
  }
  ~StandingConnection() {
    (void)!::eventfd_write(stop_.fd(), 1);
    thread_.join();
    LifeLines::remove(connection_.fd());
  }

  // Returns false if the frame cannot be sent in time. Then the connection cannot be used any more.
  bool send(const std::string& frame, const Deadline& deadline = Deadline::after(kStatusesLimit)) {
    std::lock_guard lock(send_mutex_);
    std::string why;
    if (broken_) return false;
    broken_ = connection_.send(frame, deadline, &why) != Io::kDone;
    return !broken_;
  }

 private:
  void listen() {
    TimePoint beat = now();
    for (;;) {
      while (const std::optional<Message> message = connection_.next())
        if (handlers_.message(*message)) beat = now();
      if (now() >= beat) {
        send_heartbeat();
        beat = now() + kHeartbeat;
      }
      pollfd polled[] = {{connection_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
      const auto left = std::chrono::ceil<Milliseconds>(beat - now());
      if (::poll(polled, 2, std::max(0, static_cast<int>(left.count()))) <= 0) continue;
      if (polled[1].revents != 0) return;
      if (polled[0].revents == 0) continue;
      std::string why;
      if (connection_.read(&why) == Io::kClosed) return handlers_.lost(why);
    }
  }

  void send_heartbeat() {
    if (!handlers_.heartbeat) return;
    // A server that reads nothing is stopped. It must not block this rank.
    pollfd writable{connection_.fd(), POLLOUT, 0};
    if (::poll(&writable, 1, 0) == 1) send(handlers_.heartbeat());
  }

  StoreConnection connection_;
  internal::FileDescriptor stop_;
  const Handlers handlers_;
  std::mutex send_mutex_;
  bool broken_ = false;
  std::thread thread_;
};

std::string lost_text(const StoreAddress& address, const std::string& why) {
  return concat("lost the store at ", address.host, ':', address.port,
                ": its host (the launcher, or rank 0) has ended or cannot be reached (", why, ")");
}

class TcpMembership final : public Membership {
 public:
  TcpMembership(StoreConnection connection, const StoreAddress& address, int rank, int world_size)
      : Membership(rank, world_size),
        address_(address),
        connection_(std::move(connection), {.message = [this](const Message& m) { return receive(m); },
                                            .lost = [this](const std::string& why) { handle_lost(why); },
                                            .heartbeat = [this] { return beat(); }}) {}

  // Sends the failure, and waits for the server's answer: the failure that counts for all ranks.
  Failure report(const Failure& failure) override {
    if (!is_rank()) return failure;
    {
      std::lock_guard lock(mutex_);
      if (left_) return failed() ? this->failure() : failure;
    }
    const Deadline deadline = Deadline::after(kReportLimit);
    if (!failed() && connection_.send(encode(MessageType::kReport, address_.attempt, failure), deadline)) {
      std::unique_lock lock(mutex_);
      received_.wait_until(lock, deadline.time(), [&] { return failed(); });
    }
    set_failed(failure);  // unless there was an earlier one
    return this->failure();
  }

  // Waits up to kLeaveLimit for the server's confirmation. A socket that is closed with unread data is reset,
  // and then a lost kLeave is not retransmitted.
  void leave() override {
    if (!is_rank()) return;
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(left_, true)) return;
    }
    set_left(rank());
    const Deadline deadline = Deadline::after(kLeaveLimit);
    if (!connection_.send(encode({MessageType::kLeave, {}, {}}), deadline)) return;
    std::unique_lock lock(mutex_);
    received_.wait_until(lock, deadline.time(), [&] { return leave_confirmed_ || lost_ || failed(); });
  }

  std::vector<RankStatus> statuses() override {
    if (!is_rank()) return {};
    uint64_t seen;
    {
      std::lock_guard lock(mutex_);
      if (lost_) return {};
      seen = statuses_received_;
    }
    const Deadline deadline = Deadline::after(kStatusesLimit);
    if (!connection_.send(encode({MessageType::kQueryStatuses, {}, {}}), deadline)) return {};
    std::unique_lock lock(mutex_);
    received_.wait_until(lock, deadline.time(), [&] { return statuses_received_ > seen || lost_; });
    if (statuses_received_ == seen) return {};
    return statuses_;
  }

 private:
  // Returns a heartbeat: the number of the last query, and the status, which is read after the number and so
  // is newer than the query. RankStatus::stuck is 0 unless all threads wait; a change of the value means that
  // one has moved, so it is mixed with the state of the threads that are not in calls (0: one of them can
  // still act).
  std::string beat() const {
    const int64_t query = query_.load();
    RankStatus own = status();
    if (own.stuck != 0) {
      const uint64_t others = internal::blocked_threads_id(own.threads);
      own.stuck = others == 0 ? 0 : std::max<uint64_t>(1, own.stuck * 0x9E3779B97F4A7C15u ^ others);
    }
    return encode({MessageType::kHeartbeat, {query}, {internal::encode_status(own)}});
  }

  // Handles a message of the server; invalid messages are ignored. Returns whether to send a heartbeat at
  // once.
  bool receive(const Message& message) {
    if (message.type == MessageType::kQueryHeartbeat) {
      query_.store(message.numbers[0]);
      return true;
    }
    std::lock_guard lock(mutex_);
    if (message.type == MessageType::kFailed) {
      const auto failed = parse_failure(message);
      if (failed && failed->attempt == address_.attempt) set_failed(failed->failure);
    } else if (message.type == MessageType::kLeft) {
      const int64_t rank = message.numbers[0];
      if (rank >= 0 && rank < world_size()) set_left(static_cast<int>(rank));
      leave_confirmed_ = leave_confirmed_ || rank == this->rank();
    } else if (message.type == MessageType::kStatuses && message.numbers.size() == 3 * message.texts.size()) {
      statuses_.clear();
      for (size_t i = 0; i < message.texts.size(); ++i) {
        const int64_t* n = &message.numbers[3 * i];
        std::optional<RankStatus> decoded = internal::decode_status(message.texts[i], world_size());
        if (!decoded || n[0] < 0 || n[0] >= world_size() || n[0] == rank()) continue;
        RankStatus& status = statuses_.emplace_back(std::move(*decoded));
        status.rank = static_cast<int>(n[0]);
        status.has_left = n[1] != 0;
        status.silent = Milliseconds(std::max<int64_t>(n[2], 0));
      }
      ++statuses_received_;
    }
    received_.notify_all();
    return false;
  }

  void handle_lost(const std::string& why) {
    std::lock_guard lock(mutex_);
    lost_ = true;
    if (!left_) set_failed({.kind = Failure::Kind::kDied, .text = lost_text(address_, why)});
    received_.notify_all();
  }

  const StoreAddress address_;
  std::mutex mutex_;  // of what follows; held while a message is handled
  std::condition_variable received_;
  bool left_ = false, leave_confirmed_ = false, lost_ = false;
  std::atomic<int64_t> query_{0};
  uint64_t statuses_received_ = 0;
  std::vector<RankStatus> statuses_;
  StandingConnection connection_;  // last: its thread uses the others
};

class TcpLauncherLink final : public LauncherLink {
 public:
  TcpLauncherLink(StoreConnection connection, const StoreAddress& address)
      : address_(address),
        connection_(std::move(connection), {.message = [this](const Message& m) { return receive(m); },
                                            .lost = [this](const std::string& why) { handle_lost(why); }}) {}

  void report(int attempt, const Failure& failure) override {
    connection_.send(encode(MessageType::kReport, attempt, failure));
  }

  void rank_exited(int attempt, int rank) override {
    connection_.send(encode({MessageType::kRankExited, {attempt, rank}, {}}));
  }

  bool failed(int attempt, Failure* failure) const override {
    std::lock_guard lock(mutex_);
    const bool received = received_ && received_->attempt == attempt;
    if (!received && !lost_) return false;
    if (failure != nullptr) *failure = received ? received_->failure : *lost_;
    return true;
  }

  void leave() override { connection_.send(encode({MessageType::kLeave, {}, {}})); }

 private:
  bool receive(const Message& message) {
    if (message.type != MessageType::kFailed) return false;
    std::lock_guard lock(mutex_);
    if (auto failed = parse_failure(message)) received_ = std::move(failed);
    return false;
  }

  void handle_lost(const std::string& why) {
    std::lock_guard lock(mutex_);
    lost_ = Failure{.kind = Failure::Kind::kDied, .text = lost_text(address_, why)};
  }

  const StoreAddress address_;
  mutable std::mutex mutex_;
  std::optional<internal::AttemptFailure> received_;  // of the latest attempt
  std::optional<Failure> lost_;
  StandingConnection connection_;
};

}  // namespace

std::shared_ptr<Membership> join_tcp(const StoreAddress& address, int rank, int world_size,
                                     const Deadline& deadline) {
  if (world_size < 1 || world_size > internal::kMaxWorldSize || rank < 0 || rank >= world_size)
    throw ConnectionError("join_tcp", rank, "rank ", rank, " is outside of a world of ", world_size,
                          " ranks");
  const internal::Hello who{
      .role = internal::Role::kMember, .attempt = address.attempt, .rank = rank, .world_size = world_size};
  return std::make_shared<TcpMembership>(StoreConnection::open("join_tcp", address, who, deadline), address,
                                         rank, world_size);
}

std::unique_ptr<LauncherLink> join_tcp_as_launcher(const StoreAddress& address, const std::string& name,
                                                   Milliseconds timeout) {
  const internal::Hello who{.role = internal::Role::kLauncher,
                            .attempt = StoreAddress::kAnyAttempt,
                            .name = name.substr(0, internal::kMaxName)};
  return std::make_unique<TcpLauncherLink>(
      StoreConnection::open("join_tcp_as_launcher", address, who, Deadline::after(timeout)), address);
}

}  // namespace gradus::dist
