// The socket transport between forked processes, one killed or stopped. Tests fork before they start threads.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/distributed/transport/message.h"
#include "gradus/tests/distributed/transport/backend_checks.h"
#include "gradus/tests/distributed/transport/forked_process.h"
#include "gradus/tests/distributed/transport/transport_rank.h"

namespace gradus::dist::internal {
namespace {

constexpr Tag kTag = {.group = 5, .channel = Channel::kUser, .number = 1};

// Runs body(rank, transport, membership) in a process per rank, whose status is 0 if body returns.
// `ignorant`: the transport's membership is not informed of the failures of other ranks.
class Processes {
 public:
  using Body = std::function<void(int, std::shared_ptr<Transport>, std::shared_ptr<Membership>)>;

  Processes(int size, const Body& body, bool ignorant = false) {
    for (int rank = 0; rank < size; ++rank)  // before this process has threads
      ranks_.push_back(std::make_unique<ForkedClient>(
          [&, rank, ignorant](int port) { run(rank, size, port, body, ignorant); }));
    server_.emplace(StoreServerOptions{.job_id = "socket_processes_test"});
    for (const auto& rank : ranks_) rank->start(server_->port());
  }

  void send_signal(int rank, int signal) { (*ranks_[rank])->signal(signal); }
  int wait(int rank) { return (*ranks_[rank])->wait(); }

 private:
  static void run(int rank, int size, int port, const Body& body, bool ignorant) {
    const StoreAddress address{.host = "127.0.0.1", .port = port, .job_id = "socket_processes_test"};
    const auto membership = join_tcp(address, rank, size, std::chrono::seconds(20));
    const auto store = guarded_store(connect_tcp_store(address, std::chrono::seconds(20)), membership);
    const WaitLimits watch{membership.get(), Deadline::after(std::chrono::seconds(20))};
    const auto known = ignorant ? make_local_memberships(size)[rank] : membership;
    body(rank, make_socket_transport(rank, size, store, known, watch), known);
    membership->leave();
  }

  std::vector<std::unique_ptr<ForkedClient>> ranks_;
  std::optional<StoreServer> server_;
};

// All-reduces until an E is thrown that names rank 1.
template <class E>
void reduce_until_rank_1_fails(int rank, const std::shared_ptr<Transport>& transport,
                               const std::shared_ptr<Membership>& membership, size_t n,
                               Milliseconds timeout) {
  const auto backend = make_message_backend(transport, {0, 1, 2}, rank, 1);
  std::vector<float> x(n);
  membership->set_activity(Activity::kInCall, "all_reduce", "all_reduce");
  try {
    for (;;) {
      const WaitLimits watch{membership.get(), Deadline::after(timeout)};
      backend->all_reduce({"all_reduce", watch}, x.data(), x.data(), int64_t(n), DType::kF32, ReduceOp::kMax);
    }
  } catch (const E& e) {
    if (e.rank() != 1) throw;
  }
}

TEST(SocketProcesses, AKilledRankIsAnErrorOnTheOthersWithinTwoSeconds) {
  for (const size_t n : {10, 4'000'000}) {
    Processes ranks(3, [&](int rank, auto transport, auto membership) {
      reduce_until_rank_1_fails<PeerError>(rank, transport, membership, n, std::chrono::seconds(30));
    });
    std::this_thread::sleep_for(Milliseconds(700));
    const auto start = now();
    ranks.send_signal(1, SIGKILL);
    EXPECT_EQ(ranks.wait(0), 0);
    EXPECT_EQ(ranks.wait(2), 0);
    EXPECT_LT(now() - start, std::chrono::seconds(2));
  }
}

TEST(SocketProcesses, AConnectionThatBreaksWithinAMessageIsNoticedEvenWhenNobodyTells) {
  const auto body = [](int rank, auto transport, auto membership) {
    const WaitLimits watch{membership.get(), Deadline::after(std::chrono::seconds(20))};
    std::string data(64 << 20, 'x');
    const auto place = [&](int, std::span<const std::byte>, size_t) { return data.data(); };
    try {
      for (;;)
        transport->wait(rank == 0 ? *transport->receive(1, kTag, place)
                                  : *transport->send(0, kTag, {}, std::as_bytes(std::span(data))),
                        watch, "test");
    } catch (const PeerError& e) {
      if (e.rank() != 1) throw;
    }
  };
  Processes ranks(2, body, /*ignorant=*/true);
  std::this_thread::sleep_for(Milliseconds(700));
  const auto start = now();
  ranks.send_signal(1, SIGKILL);
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_LT(now() - start, std::chrono::seconds(4));
}

TEST(SocketProcesses, AStoppedRankIsATimeoutOnTheOthers) {
  Processes ranks(3, [](int rank, auto transport, auto membership) {
    reduce_until_rank_1_fails<TimeoutError>(rank, transport, membership, 4'000'000, std::chrono::seconds(3));
  });
  std::this_thread::sleep_for(Milliseconds(700));
  const auto start = now();
  ranks.send_signal(1, SIGSTOP);
  EXPECT_EQ(ranks.wait(0), 0);
  EXPECT_EQ(ranks.wait(2), 0);
  EXPECT_LT(now() - start, std::chrono::seconds(5));
}

}  // namespace
}  // namespace gradus::dist::internal
