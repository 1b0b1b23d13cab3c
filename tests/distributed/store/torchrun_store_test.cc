// The client of torchrun's store (PyTorch's TCPStore): its requests, byte by byte, and malformed answers,
// with a scripted server. tools/launchers.sh tries the real store.
#include "gradus/distributed/store/torchrun_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <thread>

#include "gradus/distributed/base/error.h"
#include "gradus/tests/support/error.h"

namespace gradus::dist::internal {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Accepts one connection. serve(all bytes received so far) returns the bytes to send, or "close".
class Server {
 public:
  using Serve = std::function<std::string(const std::string& came)>;
  explicit Server(Serve serve) {
    std::string why;
    bool taken = false;
    listener_ =
        listen_at(resolve("127.0.0.1", 0, Deadline::after(Milliseconds(1'000)), &why).at(0), &why, &taken);
    thread_ = std::thread([this, serve] {
      pollfd polled{listener_.fd(), POLLIN, 0};
      if (poll(&polled, 1, 5'000) != 1) return;
      const FileDescriptor socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      std::string why;
      while (receive_some(socket, &came_, Deadline::after(Milliseconds(5'000)), &why) == Io::kDone) {
        const std::string answer = serve(came_);
        if (answer == "close") return;
        (void)send_all(socket, answer, Deadline::after(Milliseconds(1'000)), &why);
      }
    });
  }
  ~Server() { thread_.join(); }
  int port() const { return local_address(listener_).port(); }
  const std::string& came() const { return came_; }

 private:
  FileDescriptor listener_;
  std::string came_;
  std::thread thread_;
};

// Requests: a type (0 validate, 1 set, 3 get, 5 check), then counts and lengths as u64, and texts.
std::string number(uint64_t n) { return {reinterpret_cast<const char*>(&n), sizeof n}; }
const std::string kHello("\0\xCE\xF7\x85\x3C", 5);
const std::string kSetA = std::string("\1") + number(1) + "k" + number(3) + "v 1";
const std::string kCheckA = std::string("\5") + number(1) + number(1) + "k";
const std::string kGetA = std::string("\3") + number(1) + "k";

Deadline soon(int ms = 5'000) { return Deadline::after(Milliseconds(ms)); }

TEST(TorchrunStore, SetsAKeyAndSeesThatItIsThere) {
  const std::string all = kHello + kSetA + kCheckA;
  std::string came;
  {
    Server server([&](const std::string& bytes) {
      came = bytes;
      return bytes == all ? std::string(1, '\0') : "";
    });
    TorchrunStore store("test", "127.0.0.1", server.port(), soon());
    store.set("k", "v 1");
  }
  EXPECT_EQ(came, all);
}

TEST(TorchrunStore, WaitsForAKeyAndGetsItsValue) {
  int checks = 0;
  Server server([&](const std::string& bytes) -> std::string {
    if (bytes.ends_with(kGetA)) return number(3) + "v 1";
    // 0: the key exists, 1: it does not.
    if (bytes.ends_with(kCheckA)) return std::string(1, ++checks < 3 ? '\1' : '\0');
    return "";
  });
  TorchrunStore store("test", "127.0.0.1", server.port(), soon());
  EXPECT_EQ(store.get("k"), "v 1");
  EXPECT_EQ(checks, 3);
}

TEST(TorchrunStore, AKeyThatNobodySetsIsATimeoutOfRank0) {
  Server server(
      [&](const std::string& bytes) { return bytes.ends_with(kCheckA) ? std::string(1, '\1') : ""; });
  try {
    TorchrunStore store("test", "127.0.0.1", server.port(), soon(200));
    store.get("k");
    FAIL();
  } catch (const TimeoutError& e) {
    EXPECT_EQ(e.rank(), 0);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("within 200 ms"), HasSubstr(std::to_string(server.port()))));
  }
}

TEST(TorchrunStore, AnswersOfSomethingElseAreAnErrorThatNamesThePlace) {
  const auto get = [](const Server::Serve& serve) {
    Server server(serve);
    return error_of<ConnectionError>([&] {
      TorchrunStore store("test", "127.0.0.1", server.port(), soon());
      store.get("k");
    });
  };
  EXPECT_THAT(
      get([](const std::string&) { return "close"; }),
      AllOf(HasSubstr("[test] torchrun's own store at 127.0.0.1:"), HasSubstr("PyTorch 2.1 or later")));
  EXPECT_THAT(get([](const std::string& bytes) -> std::string {
                if (bytes.ends_with(kGetA)) return number(uint64_t(1) << 62);
                return bytes.ends_with(kCheckA) ? std::string(1, '\0') : "";
              }),
              HasSubstr("its answer has 4611686018427387904 bytes"));
}

TEST(TorchrunStore, NobodyThereIsAnErrorInTime) {
  int port;
  {
    std::string why;
    bool taken = false;
    port = local_address(listen_at(resolve("127.0.0.1", 0, soon(), &why).at(0), &why, &taken)).port();
  }
  EXPECT_THAT(error_of<ConnectionError>([&] { TorchrunStore("test", "127.0.0.1", port, soon(100)); }),
              HasSubstr("no connection within 100 ms: connection refused"));
}

}  // namespace
}  // namespace gradus::dist::internal
