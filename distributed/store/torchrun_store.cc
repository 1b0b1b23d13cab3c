// A client of the TCPStore that torchrun hosts: set, get and a check of one key over one TCP connection.
// get() polls with exponential backoff until rank 0 has set the key. Each send and receive fails after 10 s.
// Not thread-safe.
#include "gradus/distributed/store/torchrun_store.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

#include "gradus/distributed/base/error.h"

namespace gradus::dist::internal {
namespace {

// The protocol of PyTorch's TCPStore since 2.1. A request begins with one of these bytes; numbers have the
// host's byte order.
enum : char { kValidate = 0, kSet = 1, kGet = 3, kCheck = 5 };
constexpr uint32_t kMagic = 0x3C85F7CE;
constexpr char kReady = 0;
constexpr uint64_t kMaxValue = 1000;  // bytes

constexpr Milliseconds kPause{20}, kMaxPause{500};  // between two polls or attempts to connect
// The time limit for an answer. A real store answers at once.
constexpr Milliseconds kAnswerLimit{10'000};

template <class T> std::string bytes_of(T number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}
// Returns the length (u64), then the text.
std::string frame(std::string_view text) { return bytes_of<uint64_t>(text.size()).append(text); }

}  // namespace

TorchrunStore::TorchrunStore(const char* op, const std::string& host, int port, const Deadline& deadline)
    : op_(op), address_(concat(host, ':', port)), deadline_(deadline) {
  std::string why;
  for (;;) {
    for (const SocketAddress& address : resolve(host, port, deadline_, &why))
      if ((socket_ = connect_to(address, deadline_, &why))) {
        send(std::string(1, kValidate) + bytes_of(kMagic));
        return;
      }
    if (deadline_.passed()) fail(concat("no connection within ", deadline_.timeout().count(), " ms: ", why));
    std::this_thread::sleep_for(std::min(kPause, deadline_.remaining()));
  }
}

void TorchrunStore::set(std::string_view key, std::string_view value) {
  // The store does not answer a kSet; the check proves that the store speaks this protocol.
  send(std::string(1, kSet) + frame(key) + frame(value));
  if (!has(key)) fail("it does not keep what it is given");
}

std::string TorchrunStore::get(std::string_view key) {
  for (Milliseconds pause = kPause; !has(key); pause = std::min(2 * pause, kMaxPause)) {
    if (deadline_.passed())
      throw TimeoutError(op_, 0, "rank 0, which opens the job's store, did not come within ",
                         deadline_.timeout().count(), " ms (torchrun's own store, at ", address_,
                         ", would know of it)");
    std::this_thread::sleep_for(std::min(pause, deadline_.remaining()));
  }
  send(std::string(1, kGet) + frame(key));
  uint64_t size = 0;
  std::memcpy(&size, receive(sizeof size).data(), sizeof size);
  if (size > kMaxValue) fail(concat("its answer has ", size, " bytes"));
  return receive(size);
}

bool TorchrunStore::has(std::string_view key) {
  send(std::string(1, kCheck) + bytes_of<uint64_t>(1) + frame(key));
  return receive(1)[0] == kReady;
}

void TorchrunStore::send(std::string_view bytes) {
  std::string why;
  if (send_all(socket_, bytes, Deadline::after(kAnswerLimit), &why) != Io::kDone) fail(why);
}

std::string TorchrunStore::receive(size_t bytes) {
  const Deadline limit = Deadline::after(kAnswerLimit);
  std::string why;
  while (received_.size() < bytes)
    if (receive_some(socket_, &received_, limit, &why) != Io::kDone) fail(why);
  const std::string result = received_.substr(0, bytes);
  received_.erase(0, bytes);
  return result;
}

void TorchrunStore::fail(std::string_view why) const {
  throw ConnectionError(op_, -1, "torchrun's own store at ", address_,
                        " (MASTER_ADDR, MASTER_PORT), by which its ranks find each other, does not answer as "
                        "that of PyTorch 2.1 or later does: ",
                        why);
}

}  // namespace gradus::dist::internal
