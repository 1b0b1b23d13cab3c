// Which ranks are alive, and why the job failed, as known through a store's server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>

#include "gradus/distributed/store/internal/status_text.h"
#include "gradus/distributed/store/internal/store_connection.h"
#include "gradus/distributed/store/roster.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist {
namespace {

using internal::encode;
using internal::MessageType;
using internal::StoreConnection;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Milliseconds kLong{20'000};

StoreAddress address_of(const StoreServer& server, int attempt = 0) {
  return {.host = "127.0.0.1", .port = server.port(), .attempt = attempt};
}

constexpr const char* kLaunchers = "launchers' token";

StoreAddress launcher_address(const StoreServer& server) {
  return {.host = "127.0.0.1", .port = server.port(), .token = kLaunchers};
}

template <class F> bool comes_true(F&& f, Milliseconds limit = kLong) {
  const Deadline deadline = Deadline::after(limit);
  while (!f()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(Milliseconds(5));
  }
  return true;
}

// A process that gets to know the server's port and then does something.
class Process {
 public:
  explicit Process(const std::function<void(int port)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      int port;
      if (::read(ends[0], &port, sizeof port) == sizeof port) body(port);
      ::_exit(0);
    }
    ::close(ends[0]);
    to_ = ends[1];
  }
  ~Process() {
    signal(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(to_);
  }
  void start(int port) { ASSERT_EQ(::write(to_, &port, sizeof port), ssize_t(sizeof port)); }
  void signal(int number) { ::kill(pid_, number); }
  void stop() {
    signal(SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  pid_t pid_;
  int to_;
};

// Joins, says so, and lives on.
void live(int port, int rank, int world_size) {
  auto membership = join_tcp({.host = "127.0.0.1", .port = port}, rank, world_size, kLong);
  membership->set_doing("in all_reduce #12");
  connect_tcp_store({.host = "127.0.0.1", .port = port}, kLong)->set("joined" + std::to_string(rank), "");
  std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(TcpMembershipTest, ADeathIsKnownToAllWithinASecondOrTwo) {
  Process process([](int port) { live(port, 1, 3); });  // before there are threads
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 3, kLong), third = join_tcp(address_of(server), 2, 3, kLong);
  process.start(server.port());
  connect_tcp_store(address_of(server), kLong)->get("joined1", kLong);

  process.signal(SIGKILL);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(comes_true([&] { return first->failed() && third->failed(); }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(2'500));
  for (const auto& member : {first, third}) {
    EXPECT_EQ(member->failure().kind, Failure::Kind::kDied);
    EXPECT_EQ(member->failure().rank, 1);
    EXPECT_EQ(member->failure().text, "rank 1 died: its connection closed");
    EXPECT_THROW(member->check("all_reduce"), PeerError);
  }
  Failure failure;
  EXPECT_TRUE(server.failed(&failure));
  EXPECT_EQ(failure.rank, 1);
}

TEST(TcpMembershipTest, TheLaunchersVerdictComesFirst) {
  Process process([](int port) { live(port, 1, 2); });
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 2, kLong);
  process.start(server.port());
  connect_tcp_store(address_of(server), kLong)->get("joined1", kLong);

  process.signal(SIGKILL);
  std::this_thread::sleep_for(Milliseconds(100));
  EXPECT_FALSE(first->failed());
  // What others make of the broken connection does not count either.
  std::thread reporter([&] {
    EXPECT_THAT(first->report({Failure::Kind::kDied, 1, "rank 1 hung up"}).text, HasSubstr("SIGKILL"));
  });
  std::this_thread::sleep_for(Milliseconds(100));
  server.report({Failure::Kind::kDied, 1, "rank 1 was killed by signal 9 (SIGKILL)"});
  reporter.join();
  EXPECT_EQ(first->failure().text, "rank 1 was killed by signal 9 (SIGKILL)");
}

TEST(TcpMembershipTest, AStoppedRankIsNoFailureButSilent) {
  Process process([](int port) { live(port, 1, 2); });
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 2, kLong);
  process.start(server.port());
  connect_tcp_store(address_of(server), kLong)->get("joined1", kLong);
  // The next heartbeat brings it.
  EXPECT_TRUE(comes_true([&] {
    const auto statuses = first->statuses();
    return statuses.size() == 1 && statuses[0].rank == 1 && statuses[0].doing == "in all_reduce #12";
  }));

  process.stop();
  EXPECT_TRUE(comes_true([&] { return first->statuses().at(0).silent >= Milliseconds(1'500); }));
  EXPECT_FALSE(first->failed());
  process.signal(SIGCONT);
  EXPECT_TRUE(comes_true([&] { return first->statuses().at(0).silent < Milliseconds(1'000); }));
}

TEST(TcpMembershipTest, OthersLearnForWhomARankWaits) {
  StoreServer server({});
  const auto first = join_tcp(address_of(server), 0, 600, kLong),
             second = join_tcp(address_of(server), 1, 600, kLong);
  std::vector<int> even, uneven;
  for (int rank = 0; rank < 600; rank += 2) even.push_back(rank);
  for (int rank = 0; rank < 600; rank += 1 + rank % 7) uneven.push_back(rank);
  const int queue = 0;
  internal::posted_calls = &queue;
  const Membership::InCall posted(*second, "all_reduce #3", 9, 3, even);
  internal::posted_calls = nullptr;
  Membership::InCall complete(*second, "gather #5", 5, 5, even);
  complete.all_here();
  const Membership::Awaiting message(
      *second,
      [] {
        return std::vector{4, 5};
      },
      Membership::Awaiting::kAny);
  const Membership::InCall long_call(*second, "barrier #2", 4, 2, uneven);
  const Membership::InCall call(*second, "barrier #8", 6, 8, even);

  const auto text = [&] {
    const auto statuses = first->statuses();
    std::string text = statuses.empty() ? "" : statuses[0].doing;
    if (statuses.empty()) return text;
    for (const RankWait& wait : statuses[0].waits)
      text += concat("; ", wait.holds ? "" : "not held in ", wait.call, wait.any ? " any of " : ": ",
                     wait.call == "4.0#2" ? "what has room" : wait.ranks.text(100));
    return text;
  };
  const std::string expected =
      "in barrier #8; not held in 9.0#3: 0-598/2; 5.0#5: ; 4.0#2: what has room; 6.0#8: 0-598/2;  any of 4-5";
  EXPECT_TRUE(comes_true([&] { return text() == expected; })) << text();
}

TEST(TcpMembershipTest, WhoLeavesIsNotDead) {
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 3, kLong), second = join_tcp(address_of(server), 1, 3, kLong);
  second->leave();
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  EXPECT_FALSE(first->has_left(0));
  second.reset();
  std::this_thread::sleep_for(internal::kGrace + Milliseconds(300));
  EXPECT_FALSE(first->failed());
  // Who comes later hears of it too.
  auto third = join_tcp(address_of(server), 2, 3, kLong);
  EXPECT_TRUE(comes_true([&] { return third->has_left(1); }));
  const auto statuses = third->statuses();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_FALSE(statuses[0].left);
  EXPECT_TRUE(statuses[1].left);
}

// Each closes its connection while the server sends it that others have left.
TEST(TcpMembershipTest, ManyThatLeaveAtOnceAreNotDead) {
  constexpr int kRanks = 32;
  for (int repeat = 0; repeat < 10; ++repeat) {
    StoreServer server({});
    std::vector<std::optional<StoreConnection>> members;
    for (int rank = 0; rank < kRanks; ++rank)
      members.emplace_back(StoreConnection::open(
          "leave", address_of(server),
          {.role = internal::Role::kMember, .attempt = 0, .rank = rank, .world_size = kRanks},
          Deadline::after(kLong)));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        std::string why;
        EXPECT_EQ(members[rank]->send(encode({MessageType::kLeave, {}, {}}), Deadline::after(kLong), &why),
                  internal::Io::kDone);
        members[rank].reset();
        server.ended(rank);
      });
    for (std::thread& thread : threads) thread.join();
    std::this_thread::sleep_for(internal::kGrace + Milliseconds(100));
    Failure failure;
    EXPECT_FALSE(server.failed(&failure)) << failure.text;
  }
}

TEST(TcpMembershipTest, WhoEndsBeforeItJoinsHasLeft) {
  StoreServer server({.launcher_token = kLaunchers});
  server.ended(1);  // before anyone is there
  auto first = join_tcp(address_of(server), 0, 3, kLong);
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  const auto link = join_tcp_as_launcher(launcher_address(server), "node 1", kLong);
  link->ended(7, 0);  // another attempt's
  link->ended(0, 2);
  EXPECT_TRUE(comes_true([&] { return first->has_left(2); }));
  EXPECT_TRUE(first->others_left());
  EXPECT_FALSE(first->failed()) << "unless somebody waits for it";
  EXPECT_THROW(join_tcp(address_of(server), 1, 3, kLong), ConnectionError);
  link->leave();
}

TEST(TcpMembershipTest, WhoEndsInOrderMustHaveLeft) {
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 3, kLong), second = join_tcp(address_of(server), 1, 3, kLong),
       third = join_tcp(address_of(server), 2, 3, kLong);
  server.ended(1);  // what it said last may come later
  second->leave();
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  std::this_thread::sleep_for(internal::kGrace + Milliseconds(300));
  EXPECT_FALSE(first->failed());
  server.ended(2);
  EXPECT_TRUE(comes_true([&] { return first->failed(); }));
  EXPECT_EQ(first->failure().text, "rank 2 exited with code 0 without leaving the job (_exit?)");
}

TEST(TcpMembershipTest, WhoHasLeftHearsOfOthersButReportsNothing) {
  StoreServer server({});
  auto first = join_tcp(address_of(server), 0, 2, kLong), second = join_tcp(address_of(server), 1, 2, kLong);
  first->leave();
  EXPECT_EQ(first->report({Failure::Kind::kFailed, 0, "too late"}).text, "too late");
  second->leave();
  EXPECT_TRUE(comes_true([&] { return first->has_left(1); }));
  EXPECT_FALSE(server.failed());
  EXPECT_FALSE(second->failed());
}

TEST(TcpMembershipTest, TheFirstReportCountsForAll) {
  StoreServer server({});
  constexpr int kRanks = 4;
  std::vector<std::shared_ptr<Membership>> members;
  for (int r = 0; r < kRanks; ++r) members.push_back(join_tcp(address_of(server), r, kRanks, kLong));
  std::vector<Failure> counted(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r)
    threads.emplace_back([&, r] {
      counted[r] =
          members[r]->report({Failure::Kind::kTimeout, (r + 1) % kRanks, "told by " + std::to_string(r)});
    });
  for (auto& thread : threads) thread.join();
  Failure failure;
  ASSERT_TRUE(server.failed(&failure));
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_EQ(counted[r].text, failure.text);
    EXPECT_EQ(counted[r].kind, Failure::Kind::kTimeout);
    EXPECT_EQ(counted[r].rank, failure.rank);
    EXPECT_EQ(members[r]->failure().text, failure.text);
  }
  server.report({Failure::Kind::kDied, 0, "later"});
  EXPECT_EQ(members[0]->failure().text, failure.text);
}

TEST(TcpMembershipTest, LatecomersHearOfTheFailure) {
  StoreServer server({});
  server.report({Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  EXPECT_TRUE(comes_true([&] { return member->failed(); }));
  EXPECT_EQ(member->failure().text, "rank 1 exited with code 3");
}

TEST(TcpMembershipTest, ALostServerIsTheJobsFailure) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{});
  auto stays = join_tcp(address_of(*server), 0, 2, kLong),
       leaves = join_tcp(address_of(*server), 1, 2, kLong);
  leaves->leave();
  server.reset();
  EXPECT_TRUE(comes_true([&] { return stays->failed(); }));
  EXPECT_EQ(stays->failure().kind, Failure::Kind::kDied);
  EXPECT_THAT(stays->failure().text, AllOf(HasSubstr("127.0.0.1:"), HasSubstr("the launcher, or rank 0")));
  EXPECT_FALSE(leaves->failed()) << "it is done";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(stays->statuses().empty());
  EXPECT_THAT(stays->report({Failure::Kind::kTimeout, 1, "other"}).text, HasSubstr("lost the store"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(2'000));
}

TEST(TcpMembershipTest, AServerThatHasStoppedHoldsUpNobody) {
  // The server's process says its port, and is stopped.
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  Process process([&](int) {
    StoreServer server({});
    const int port = server.port();
    if (::write(ends[1], &port, sizeof port) == sizeof port)
      std::this_thread::sleep_for(std::chrono::hours(1));
  });
  process.start(0);
  int port = 0;
  ASSERT_EQ(::read(ends[0], &port, sizeof port), ssize_t(sizeof port));
  auto member = join_tcp({.host = "127.0.0.1", .port = port}, 0, 2, kLong),
       leaves = join_tcp({.host = "127.0.0.1", .port = port}, 1, 2, kLong);
  auto store = guarded_store(connect_tcp_store({.host = "127.0.0.1", .port = port}, kLong), member);

  process.stop();
  auto start = std::chrono::steady_clock::now();
  leaves->leave();
  leaves.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(900));
  start = std::chrono::steady_clock::now();
  EXPECT_TRUE(member->statuses().empty());
  EXPECT_ANY_THROW(store->get("key", Milliseconds(500)));
  EXPECT_EQ(member->report({Failure::Kind::kTimeout, 1, "mine"}).text, "mine");
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(6'000));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(TcpMembershipTest, ARankIsThereOnceAndInsideOfTheWorld) {
  StoreServer server({});
  auto member = join_tcp(address_of(server), 1, 2, kLong);
  const auto error_of = [&](int rank, int world_size) {
    try {
      join_tcp(address_of(server), rank, world_size, kLong);
    } catch (const ConnectionError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of(1, 2), HasSubstr("rank 1 is announced already"));
  EXPECT_THAT(error_of(0, 3), HasSubstr("3 ranks"));
  EXPECT_THAT(error_of(2, 2), HasSubstr("outside"));
  EXPECT_THAT(error_of(-1, 2), HasSubstr("outside"));
  auto other = join_tcp(address_of(server), 0, 2, kLong);
  EXPECT_FALSE(other->failed()) << "who was refused has not died";
}

TEST(TcpMembershipTest, TheNextAttemptStartsAfresh) {
  StoreServer server({});
  auto old = join_tcp(address_of(server), 0, 1, kLong);
  server.report({Failure::Kind::kFailed, 0, "rank 0 exited with code 1"});
  EXPECT_TRUE(comes_true([&] { return old->failed(); }));
  server.begin_attempt(1);
  EXPECT_FALSE(server.failed());
  auto next = join_tcp(address_of(server, 1), 0, 2, kLong);
  old.reset();  // of no interest any more
  std::this_thread::sleep_for(internal::kGrace + Milliseconds(200));
  EXPECT_FALSE(next->failed());
}

TEST(TcpMembershipTest, GuardedWaitsEndWithTheFailure) {
  StoreServer server({});
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  auto store = guarded_store(connect_tcp_store(address_of(server), kLong), member);
  const auto start = std::chrono::steady_clock::now();
  std::thread reporter([&] {
    std::this_thread::sleep_for(Milliseconds(100));
    server.report({Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  });
  for (const auto& wait : std::vector<std::function<void()>>{
           [&] { store->get("key", kLong); }, [&] { store->pop("key", kLong); },
           [&] { store->wait({"key"}, kLong); }, [&] { store->set("key", ""); }}) {
    try {
      wait();
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 exited with code 3"));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(2'000));
  reporter.join();
}

TEST(GuardedStoreTest, AFailureCountsMoreThanATimeoutThatComesAtOnce) {
  const auto members = make_local_memberships(2);
  auto store = guarded_store(make_memory_store(), members[0]);
  std::thread reporter([&] {
    std::this_thread::sleep_for(Milliseconds(50));
    members[1]->report({Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  });
  // One slice of waiting, in which the job fails.
  EXPECT_THROW(store->get("key", Milliseconds(150)), PeerError);
  reporter.join();
}

// ---- launchers of further nodes

TEST(LauncherLinkTest, ALaunchersReportIsAVerdict) {
  StoreServer server({.launcher_token = kLaunchers});
  auto link = join_tcp_as_launcher(launcher_address(server), "node 1", kLong);
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  EXPECT_FALSE(link->failed(0));
  link->report(1, {Failure::Kind::kFailed, 1, "of an attempt that is not"});
  link->report(0, {Failure::Kind::kFailed, 1, "rank 1 exited with code 3"});
  Failure failure;
  EXPECT_TRUE(comes_true([&] { return member->failed() && link->failed(0, &failure); }));
  EXPECT_EQ(member->failure().text, "rank 1 exited with code 3");
  EXPECT_EQ(failure.text, "rank 1 exited with code 3");
  EXPECT_FALSE(link->failed(1));

  server.begin_attempt(1);
  link->report(0, {Failure::Kind::kFailed, 1, "of an attempt that is over"});
  auto next = join_tcp(address_of(server, 1), 0, 2, kLong);
  link->report(1, {Failure::Kind::kFailed, 0, "again"});
  EXPECT_TRUE(comes_true([&] { return next->failed(); }));
  EXPECT_EQ(next->failure().text, "again");
}

TEST(LauncherLinkTest, ADeadLauncherIsNamed) {
  StoreServer server({.launcher_token = kLaunchers});
  auto leaves = join_tcp_as_launcher(launcher_address(server), "node 1", kLong);
  auto dies = join_tcp_as_launcher(launcher_address(server), "node 2 (there)", kLong);
  auto member = join_tcp(address_of(server), 0, 2, kLong);
  leaves->leave();
  leaves.reset();
  dies.reset();
  EXPECT_TRUE(comes_true([&] { return member->failed(); }));
  EXPECT_EQ(member->failure().text, "the launcher of node 2 (there) died: its connection closed");
}

TEST(LauncherLinkTest, ALostServerCountsAsAFailure) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{.launcher_token = kLaunchers});
  auto link = join_tcp_as_launcher(launcher_address(*server), "node 1", kLong);
  server.reset();
  Failure failure;
  EXPECT_TRUE(comes_true([&] { return link->failed(0, &failure); }));
  EXPECT_THAT(failure.text, HasSubstr("lost the store"));
}

// ---- the roster alone

TEST(RosterTest, ADeathSeenBeforeATimeoutIsTheCause) {
  internal::Roster roster;
  const TimePoint start;
  ASSERT_FALSE(roster.join(0, 2, start));
  ASSERT_FALSE(roster.join(1, 2, start));
  roster.lost(1, "died: its connection closed", start);
  roster.report({Failure::Kind::kTimeout, 1, "rank 1 did not come"}, start + Milliseconds(100));
  EXPECT_FALSE(roster.failure());
  roster.expire(start + internal::kGrace);
  ASSERT_TRUE(roster.failure());
  EXPECT_EQ(roster.failure()->text, "rank 1 died: its connection closed");
}

TEST(RosterTest, ATimeoutBeforeADeathIsTheCause) {
  internal::Roster roster;
  const TimePoint start;
  ASSERT_FALSE(roster.join(0, 2, start));
  roster.report({Failure::Kind::kTimeout, 1, "rank 1 did not come"}, start);
  roster.lost(0, "died: its connection closed", start);
  EXPECT_EQ(roster.failure()->text, "rank 1 did not come");
  EXPECT_FALSE(roster.next_deadline());
}

TEST(RosterTest, StatusesSayWhoNeverCame) {
  internal::Roster roster;
  const TimePoint start;
  ASSERT_FALSE(roster.join(0, 2, start));
  roster.heartbeat(0, 0, "in barrier #1", start + Milliseconds(1'000));
  const auto statuses = roster.statuses(start + Milliseconds(1'300));
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].silent, Milliseconds(300));
  EXPECT_EQ(statuses[0].doing, "in barrier #1");
  EXPECT_EQ(statuses[1].silent, Milliseconds(1'300));
  EXPECT_EQ(statuses[1].doing, "not in the job yet");
}

TEST(RosterTest, EndsADeadlockWhenNobodyHasMovedSinceItWasSeen) {
  const TimePoint start{};
  internal::Roster roster;
  for (int rank : {0, 1}) EXPECT_FALSE(roster.join(rank, 2, start));
  // Each waits for the other in a call of its own.
  const auto beat = [&](int rank, uint64_t moves, int64_t answers, int ms) {
    const std::string call = rank == 0 ? "1.0#3" : "2.0#7";
    const std::string text = internal::to_text(
        {.rank = rank,
         .doing = rank == 0 ? "in backward #3 of group 'DDP of gen'" : "in barrier #7 of group 'world'",
         .waits = {{.call = call, .ranks = RankSet({0, 1})}},
         .stuck = moves,
         .came = {{std::string(group_of(call)), number_of(call)}}});
    roster.heartbeat(rank, answers, text, start + Milliseconds(ms));
  };
  const auto asks = [&] {
    const auto question = roster.take_question();
    return question ? question->number : 0;
  };
  beat(0, 5, 0, 0);
  beat(1, 8, 0, 0);
  EXPECT_EQ(asks(), 0) << "they may have come to it just now";
  beat(0, 5, 0, 500);
  EXPECT_EQ(asks(), 1);
  EXPECT_EQ(asks(), 0);
  beat(1, 8, 0, 500);
  beat(0, 5, 0, 600);
  beat(0, 5, 1, 610);
  EXPECT_FALSE(roster.failure()) << "rank 1 has not answered";
  beat(1, 9, 1, 610);
  EXPECT_FALSE(roster.failure()) << "rank 1 has moved";

  beat(1, 9, 1, 1000);
  EXPECT_EQ(asks(), 2);
  beat(1, 9, 2, 1010);
  beat(0, 5, 2, 1010);
  ASSERT_TRUE(roster.failure());
  EXPECT_EQ(roster.failure()->kind, Failure::Kind::kDeadlock);
  EXPECT_THAT(roster.failure()->text, AllOf(HasSubstr("they wait for each other"),
                                            HasSubstr("it is in backward #3 of group 'DDP of gen'"),
                                            HasSubstr("it is in barrier #7 of group 'world'")));
}

}  // namespace
}  // namespace gradus::dist
