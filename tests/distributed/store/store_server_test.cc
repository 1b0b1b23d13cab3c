// StoreServer: which clients it admits (token, job, attempt), errors of ports and addresses, and what it
// survives: strangers, oversized frames, slow and dead clients. StoreService is the server without sockets.
#include "gradus/distributed/store/store_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "gradus/distributed/store/internal/store_service.h"
#include "gradus/distributed/store/socket.h"
#include "gradus/distributed/store/store_protocol.h"
#include "gradus/distributed/store/tcp_store.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist {
namespace {

using internal::encode;
using internal::FileDescriptor;
using internal::Io;
using internal::Message;
using internal::MessageType;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Milliseconds kShort{300}, kLong{20'000};  // limits of waits that must fail, and must succeed

StoreAddress address_of(const StoreServer& server) { return {.host = "127.0.0.1", .port = server.port()}; }

FileDescriptor connect_raw(int port) {
  std::string why;
  FileDescriptor socket = internal::connect_to(
      internal::resolve("127.0.0.1", port, Deadline::after(kLong), &why).at(0), Deadline::after(kLong), &why);
  EXPECT_TRUE(socket) << why;
  return socket;
}

void send_raw(const FileDescriptor& socket, std::string_view bytes) {
  std::string why;
  (void)internal::send_all(socket, bytes, Deadline::after(kShort), &why);
}

// Returns whether the other side closes the connection in time, whatever it sends before.
bool is_closed_within(const FileDescriptor& socket, Milliseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  std::string bytes, why;
  Io io;
  while ((io = internal::receive_some(socket, &bytes, deadline, &why)) == Io::kDone) {
  }
  return io == Io::kClosed;
}

// Expects that the server serves a new client.
void expect_alive(const StoreServer& server) {
  auto store = connect_tcp_store(address_of(server), kLong);
  static int count = 0;
  const std::string key = "alive" + std::to_string(++count);
  store->set(key, "yes");
  EXPECT_EQ(store->get(key, kLong), "yes");
}

std::string error_of(const StoreAddress& address, Milliseconds timeout = kShort) {
  return gradus::error_of<ConnectionError>([&] { connect_tcp_store(address, timeout); });
}

// ---- who is let in

TEST(StoreServerTest, OffLoopbackItNeedsAToken) {
  EXPECT_THROW(StoreServer({.host = "0.0.0.0"}), ValueError);
  StoreServer server({.host = "0.0.0.0", .token = "secret"});
  StoreAddress address = address_of(server);
  address.token = "secret";
  connect_tcp_store(address, kLong)->set("key", "value");
}

TEST(StoreServerTest, AWrongTokenIsRefusedAtOnce) {
  StoreServer server({.token = "secret"});
  StoreAddress address = address_of(server);
  for (const char* token : {"", "Secret", "secret "}) {
    address.token = token;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THAT(error_of(address, kLong),
                AllOf(HasSubstr("token"), HasSubstr(std::to_string(server.port()))));
    EXPECT_LT(std::chrono::steady_clock::now() - start, Milliseconds(5'000));
  }
}

TEST(StoreServerTest, AnotherJobIsRefused) {
  StoreServer server({.job_id = "ours", .token = "secret"});
  StoreAddress address = address_of(server);
  address.token = "secret";
  address.job_id = "theirs";
  EXPECT_THAT(error_of(address, kLong), HasSubstr("it belongs to job 'ours'"));
}

TEST(StoreServerTest, AnEarlierAttemptIsRefusedAndALaterOneWaits) {
  StoreServer server({});
  StoreAddress address = address_of(server);
  auto store = connect_tcp_store(address, kLong);
  store->set("key", "value");

  address.attempt = 1;
  EXPECT_THAT(error_of(address), HasSubstr("the job is in attempt 0, this is attempt 1"));
  std::shared_ptr<Store> next;
  std::thread early([&] { next = connect_tcp_store(address, kLong); });
  std::this_thread::sleep_for(Milliseconds(50));
  server.begin_attempt(1);
  early.join();
  EXPECT_FALSE(next->check({"key"})) << "keys are forgotten";

  EXPECT_THROW(store->get("key", kShort), ConnectionError);
  address.attempt = 0;
  EXPECT_THAT(error_of(address, kLong), HasSubstr("the job is in attempt 1, this is attempt 0"));
}

TEST(StoreServerTest, WhatLaunchersSayOutlivesAttempts) {
  StoreServer server({.launcher_token = "launchers"});
  StoreAddress address = address_of(server);
  address.token = "launchers";
  address.attempt = StoreAddress::kAnyAttempt;
  auto store = connect_tcp_store(address, kLong);
  store->set("launcher/node1", "here");
  store->set("key", "value");
  std::string got;
  std::thread waiter([&] { got = store->get("launcher/node2", kLong); });
  server.begin_attempt(1);
  EXPECT_EQ(store->get("launcher/node1", kShort), "here");
  EXPECT_FALSE(store->check({"key"}));
  store->set("launcher/node2", "too");
  waiter.join();
  EXPECT_EQ(got, "too");
}

TEST(StoreServerTest, OnlyWhoHasTheLaunchersTokenIsALauncher) {
  for (const char* launchers : {"", "launchers"}) {  // "": the job has one node
    StoreServer server({.token = "ranks", .launcher_token = launchers});
    StoreAddress address = address_of(server);
    address.token = "ranks";
    auto member = join_tcp(address, 0, 2, kLong);
    auto store = connect_tcp_store(address, kLong);
    EXPECT_THROW(store->set("launcher/0/verdict", "0"), StoreError);
    EXPECT_THROW(store->check({"key", "launcher/0/verdict"}), StoreError);
    store->set("key", "launcher/");  // a value may begin so
    for (const char* token : {"", "ranks"}) {
      address.token = token;
      EXPECT_THROW(join_tcp_as_launcher(address, "node 1", kLong), ConnectionError);
      address.attempt = StoreAddress::kAnyAttempt;
      EXPECT_THROW(connect_tcp_store(address, kLong), ConnectionError);
      address.attempt = 0;
    }
    EXPECT_FALSE(server.failed());
  }
}

// ---- where it is

TEST(StoreServerTest, ATakenPortIsAnErrorThatNamesThePort) {
  StoreServer first({});
  try {
    StoreServer second({.port = first.port(), .job_id = "second"});
    FAIL();
  } catch (const ConnectionError& error) {
    EXPECT_EQ(error.reason(), ConnectionError::Reason::kPortTaken);
    EXPECT_THAT(error.what(), HasSubstr(concat(':', first.port(), ": the port is taken by another process")));
  }
}

TEST(StoreServerTest, BadAddressesAreErrorsThatNameThem) {
  EXPECT_ERROR(ConnectionError, StoreServer({.host = "192.0.2.1", .token = "secret"}), "192.0.2.1");
  EXPECT_THROW(StoreServer({.port = 70'000}), ValueError);
}

TEST(StoreServerTest, NobodyThereIsAnErrorThatSaysWhere) {
  int port;
  {
    StoreServer server({});
    port = server.port();
  }
  EXPECT_THAT(
      error_of({.host = "127.0.0.1", .port = port}),
      AllOf(HasSubstr("127.0.0.1:" + std::to_string(port)), HasSubstr("refused"), HasSubstr("300 ms")));
}

TEST(StoreServerTest, ANameThatDoesNotResolveIsAnErrorThatSaysSo) {
  EXPECT_THAT(error_of({.host = "no-such-host.invalid", .port = 1}),
              AllOf(HasSubstr("'no-such-host.invalid' does not resolve")));
}

TEST(StoreServerTest, TheServerMayComeLater) {
  int port;
  {
    StoreServer server({});
    port = server.port();
  }
  std::shared_ptr<Store> store;
  std::thread client([&] { store = connect_tcp_store({.host = "127.0.0.1", .port = port}, kLong); });
  std::this_thread::sleep_for(Milliseconds(100));
  StoreServer server({.port = port});
  client.join();
  store->set("key", "value");
}

// A listener that calls answer() for each connection and keeps the connection open.
class Stranger {
 public:
  explicit Stranger(std::function<void(const FileDescriptor&)> answer) : answer_(std::move(answer)) {
    std::string why;
    bool taken;
    listener_ = internal::listen_at(internal::resolve("127.0.0.1", 0, Deadline::after(kLong), &why).at(0),
                                    &why, &taken);
    thread_ = std::thread([this] {
      while (!stop_) {
        FileDescriptor socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
          std::this_thread::sleep_for(Milliseconds(5));
          continue;
        }
        answer_(socket);
        held_.push_back(std::move(socket));
      }
    });
  }
  ~Stranger() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return internal::local_address(listener_).port(); }

 private:
  std::function<void(const FileDescriptor&)> answer_;
  FileDescriptor listener_;
  std::vector<FileDescriptor> held_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(StoreServerTest, SomebodyElseAtThePortIsAnErrorThatSaysSo) {
  Stranger web(
      [](const FileDescriptor& s) { send_raw(s, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"); });
  EXPECT_THAT(error_of({.host = "127.0.0.1", .port = web.port()}, kLong), HasSubstr("no Gradus store"));
  Stranger silent([](const FileDescriptor&) {});
  EXPECT_THAT(error_of({.host = "127.0.0.1", .port = silent.port()}), HasSubstr("did not answer"));
  Stranger huge([](const FileDescriptor& s) { send_raw(s, std::string(100, '\xff')); });
  EXPECT_THAT(error_of({.host = "127.0.0.1", .port = huge.port()}, kLong), HasSubstr("no Gradus store"));
}

TEST(StoreServerTest, AServerThatDoesNotKnowTheTokenIsNotTrusted) {
  // A server that accepts any proof.
  Stranger impostor([](const FileDescriptor& s) {
    std::string bytes, why;
    internal::receive_some(s, &bytes, Deadline::after(kLong), &why);
    send_raw(s, encode({MessageType::kChallenge, {}, {internal::random_nonce()}}));
    internal::receive_some(s, &bytes, Deadline::after(kLong), &why);
    send_raw(s, encode({MessageType::kWelcome, {}, {std::string(internal::kProofBytes, 'x')}}));
  });
  EXPECT_THAT(error_of({.host = "127.0.0.1", .port = impostor.port(), .token = "secret"}, kLong),
              HasSubstr("does not know this job's token"));
}

TEST(SocketTest, AnErrorOfPollEndsTheWait) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  const FileDescriptor socket(pair[0]), peer(pair[1]);
  rlimit limit, zero;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  zero = {.rlim_cur = 0, .rlim_max = limit.rlim_max};  // poll refuses more descriptors than the limit
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &zero), 0);
  std::string bytes, why;
  const Io io = internal::receive_some(socket, &bytes, Deadline::after(kLong), &why);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(io, Io::kClosed);
  EXPECT_THAT(why, HasSubstr("Invalid argument"));
}

// ---- what it survives

TEST(StoreServerTest, OversizedFramesAreDroppedBeforeTheyAreSent) {
  StoreServer server({});
  for (const uint32_t length : {0xffffffffu, 0x7fffffffu, 0x10000u}) {
    FileDescriptor socket = connect_raw(server.port());
    std::string head;
    for (int i = 0; i < 4; ++i) head += static_cast<char>(length >> (8 * i));
    send_raw(socket, head);
    EXPECT_TRUE(is_closed_within(socket, kLong)) << length;
  }
  expect_alive(server);
}

TEST(StoreServerTest, HalfOpenConnectionsEndInTime) {
  StoreServer server({});
  FileDescriptor silent = connect_raw(server.port());
  FileDescriptor half = connect_raw(server.port());
  send_raw(half, encode(internal::Hello{.job_id = "none", .nonce = internal::random_nonce()}).substr(0, 20));
  FileDescriptor unproven = connect_raw(server.port());
  send_raw(unproven, encode(internal::Hello{.job_id = "none", .nonce = internal::random_nonce()}));
  expect_alive(server);
  EXPECT_TRUE(is_closed_within(silent, Milliseconds(8'000)));
  EXPECT_TRUE(is_closed_within(half, Milliseconds(2'000)));
  EXPECT_TRUE(is_closed_within(unproven, Milliseconds(2'000)));
}

TEST(StoreServerTest, AThousandStrangersKeepNobodyOut) {
  StoreServer server({});
  auto member = join_tcp(address_of(server), 0, 1, kLong);
  auto store = connect_tcp_store(address_of(server), kLong);
  std::vector<FileDescriptor> held;
  for (int i = 0; i < 1000; ++i) {
    FileDescriptor socket = connect_raw(server.port());
    if (i % 10 == 0) held.push_back(std::move(socket));  // some stay, most go away
    if (i % 200 == 0) expect_alive(server);
  }
  store->set("key", "value");
  expect_alive(server);
  EXPECT_FALSE(member->failed());
}

TEST(StoreServerTest, ADeadClientsWaitEnds) {
  StoreServer server({});
  auto store = connect_tcp_store(address_of(server), kLong);
  {
    // An authenticated client requests to pop a key, and disconnects.
    FileDescriptor socket = connect_raw(server.port());
    const std::string hello = encode(internal::Hello{.job_id = "none", .nonce = internal::random_nonce()});
    send_raw(socket, hello);
    std::string challenge, why;
    internal::receive_some(socket, &challenge, Deadline::after(kLong), &why);
    const std::string proof = internal::make_proof("", "client", hello.substr(4), challenge.substr(4));
    send_raw(socket,
             encode({MessageType::kProof, {}, {proof}}) + encode({MessageType::kPop, {100'000}, {"key"}}));
    std::string welcome;
    internal::receive_some(socket, &welcome, Deadline::after(kLong), &why);
  }
  std::this_thread::sleep_for(Milliseconds(100));
  store->set("key", "value");
  EXPECT_EQ(store->pop("key", kShort), "value") << "not given to the dead";
}

TEST(StoreServerTest, ItIsGoneAndTheErrorSaysSo) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{});
  auto store = connect_tcp_store(address_of(*server), kLong);
  std::string text;
  std::thread waiter([&] { text = gradus::error_of<ConnectionError>([&] { store->get("key", kLong); }); });
  std::this_thread::sleep_for(Milliseconds(100));
  server.reset();
  waiter.join();
  EXPECT_THAT(text, AllOf(HasSubstr("is gone"), HasSubstr("the launcher, or rank 0")));
  EXPECT_THROW(store->set("key", "value"), ConnectionError);
}

// ---- the same without sockets, in simulated time

class StoreServiceTest : public testing::Test {
 protected:
  using Id = internal::StoreService::Id;

  // Connects and authenticates.
  Id enter(const internal::Hello& who) {
    const Id id = service_.connect(now_);
    internal::Hello hello = who;
    hello.job_id = "none";
    hello.nonce = std::string(internal::kNonceBytes, 'n');
    const std::string frame = encode(hello);
    service_.receive(id, frame, now_);
    const std::string challenge = take(id);
    service_.receive(id,
                     encode({MessageType::kProof,
                             {},
                             {internal::make_proof("", "client", frame.substr(4), challenge.substr(4))}}),
                     now_);
    take(id);
    return id;
  }
  Id enter_client() { return enter({}); }
  Id enter_member(int rank, int world_size) {
    return enter({.role = internal::Role::kMember, .rank = rank, .world_size = world_size});
  }

  std::string take(Id id) {
    const std::string output(service_.output(id));
    service_.mark_sent(id, output.size(), now_);
    return output;
  }
  void ask(Id id, const Message& message) { service_.receive(id, encode(message), now_); }
  void pass(Milliseconds time) {
    now_ += time;
    service_.expire(now_);
  }

  TimePoint now_;
  internal::StoreService service_{{.job_id = "none", .max_connections = 20, .max_greeting = 5}};
};

TEST_F(StoreServiceTest, ASlowReaderIsDropped) {
  const Id id = enter_client();
  ask(id, {MessageType::kSet, {}, {"key", std::string(1 << 20, 'v')}});
  take(id);
  ask(id, {MessageType::kGet, {0}, {"key"}});
  EXPECT_FALSE(service_.can_receive(id)) << "while an answer is on its way nothing more is taken";
  for (int i = 0; i < 5; ++i) {
    pass(Milliseconds(20'000));
    service_.mark_sent(id, 100'000, now_);  // slow, but it reads
    EXPECT_FALSE(service_.should_close(id));
  }
  pass(Milliseconds(40'000));
  EXPECT_TRUE(service_.should_close(id));
  EXPECT_TRUE(service_.output(id).empty());
}

TEST_F(StoreServiceTest, ASlowSenderIsDropped) {
  const Id id = enter_client();
  const std::string frame = encode({MessageType::kSet, {}, {"key", std::string(1000, 'v')}});
  service_.receive(id, frame.substr(0, 500), now_);
  pass(Milliseconds(29'000));
  EXPECT_FALSE(service_.should_close(id));
  pass(Milliseconds(2'000));
  EXPECT_TRUE(service_.should_close(id));
}

TEST_F(StoreServiceTest, WhoOnlyWaitsIsNotDropped) {
  const Id id = enter_client();
  pass(std::chrono::hours(24));
  EXPECT_FALSE(service_.should_close(id));
  ask(id, {MessageType::kGet, {Milliseconds(std::chrono::hours(48)).count()}, {"key"}});
  pass(std::chrono::hours(47));
  EXPECT_FALSE(service_.should_close(id));
  ask(enter_client(), {MessageType::kSet, {}, {"key", "v"}});
  EXPECT_FALSE(service_.output(id).empty());
}

TEST_F(StoreServiceTest, QuestionsBeforeTheAnswerBreakTheProtocol) {
  const Id id = enter_client();
  ask(id, {MessageType::kGet, {1000}, {"key"}});
  ask(id, {MessageType::kNumKeys, {}, {}});
  EXPECT_TRUE(service_.should_close(id));
}

TEST_F(StoreServiceTest, StrangersMakeRoomForStrangers) {
  const Id inside = enter_client();
  std::vector<Id> strangers;
  for (int i = 0; i < 6; ++i) strangers.push_back(service_.connect(now_));
  EXPECT_TRUE(service_.should_close(strangers[0])) << "the oldest";
  EXPECT_FALSE(service_.should_close(strangers[1]));
  EXPECT_FALSE(service_.should_close(inside));
  pass(Milliseconds(5'000));
  EXPECT_TRUE(service_.should_close(strangers[5])) << "had its time";
  EXPECT_FALSE(service_.should_close(inside));
}

TEST_F(StoreServiceTest, AFullHouseRefusesAndSaysWhy) {
  for (int i = 0; i < 20; ++i) enter_client();
  const Id id = service_.connect(now_);
  service_.receive(
      id, encode(internal::Hello{.job_id = "none", .nonce = std::string(internal::kNonceBytes, 'n')}), now_);
  EXPECT_THAT(std::string(service_.output(id)), HasSubstr("20 connections"));
  EXPECT_TRUE(service_.should_close(id));
}

TEST_F(StoreServiceTest, ManyQuestionsForStatusesDoNotPileUp) {
  const Id id = enter_member(0, internal::kMaxWorldSize);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += encode({MessageType::kQueryStatuses, {}, {}});
  service_.receive(id, many, now_);
  EXPECT_LT(service_.output(id).size(), size_t(16) << 20);
}

TEST_F(StoreServiceTest, AnotherVersionIsToldSo) {
  const Id id = service_.connect(now_);
  const std::string nonce(internal::kNonceBytes, 'n');
  service_.receive(id, encode({MessageType::kHello, {1, 0, 0, -1, 0}, {internal::kMagic, nonce, "none", ""}}),
                   now_);
  EXPECT_THAT(std::string(service_.output(id)), HasSubstr(concat("version ", internal::kProtocolVersion)));
}

}  // namespace
}  // namespace gradus::dist
