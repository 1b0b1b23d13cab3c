#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "gradus/distributed/health/waiting.h"
#include "gradus/distributed/transport/segment.h"
#include "gradus/tensor/runtime/blocked_signals.h"

namespace gradus::dist::internal {
namespace {

// The first member makes a memfd and listens on a socket with a random name in the abstract namespace.
// The others read the name in the store. Each of them connects, sends a Hello that says who it is, and
// gets the memfd in the answer. The memory and the name disappear with the last process that has them,
// however it ends.
struct Hello {
  uint64_t magic = 0x47524144'53454731;  // "GRADSEG1"
  uint32_t index = 0;
  uint32_t zero = 0;
  uint64_t bytes = 0;
};

constexpr char kOp[] = "shared memory";
constexpr Milliseconds kSlice{50};
constexpr size_t kNameBytes = 32;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

[[noreturn]] void throw_errno(const char* what) {
  throw ConnectionError(kOp, -1, what, ": ", strerror(errno));
}

class ProcessSegment : public Segment {
 public:
  ProcessSegment(const Descriptor& memory, size_t bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (data == MAP_FAILED) throw_errno("mmap");
    data_ = static_cast<std::byte*>(data);
    bytes_ = bytes;
  }
  ~ProcessSegment() override { munmap(data_, bytes_); }
};

// Makes zeroed memory. Its size is sealed, so no access to it can fail later.
Descriptor make_memory(size_t bytes) {
  Descriptor memory(memfd_create("gradus", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) throw_errno("memfd_create");
  const gradus::internal::BlockedSignals blocked;
  if (ftruncate(memory.get(), off_t(bytes)) != 0) throw_errno("ftruncate");
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw_errno("F_ADD_SEALS");
  return memory;
}

bool is_memory(const Descriptor& memory, size_t bytes) {
  struct stat status {};
  const int seals = fcntl(memory.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(memory.get(), &status) == 0 &&
         size_t(status.st_size) == bytes;
}

std::string random_name() {
  unsigned char bytes[kNameBytes / 2];
  if (getrandom(bytes, sizeof bytes, 0) != ssize_t(sizeof bytes)) throw_errno("getrandom");
  std::string name;
  for (unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte / 16];
    name += "0123456789abcdef"[byte % 16];
  }
  return name;
}

struct Address {
  explicit Address(const std::string& name) {
    const std::string path = "gradus-" + name;
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, path.data(), path.size());  // a leading zero: the abstract namespace
    bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + path.size());
  }
  sockaddr_un address{};
  socklen_t bytes;
};

Descriptor make_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_errno("socket");
  return socket;
}

bool is_same_user(const Descriptor& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

bool send_hello(const Descriptor& socket, const Hello& hello, const Descriptor* memory = nullptr) {
  iovec data{const_cast<Hello*>(&hello), sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{.msg_iov = &data, .msg_iovlen = 1};
  if (memory) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = memory->get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket.get(), &message, MSG_NOSIGNAL) == ssize_t(sizeof hello);
}

// Reads a Hello, if one has come. The sender of a wrong one is ignored.
enum class Received { kHello, kNothingYet, kWrong };
Received receive_hello(const Descriptor& socket, Hello& hello, Descriptor* memory = nullptr) {
  iovec data{&hello, sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  const ssize_t bytes = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Received::kNothingYet;
  if (bytes < 0) return Received::kWrong;
  Descriptor given;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int))) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    given = Descriptor(fd);
  }
  if (memory) *memory = std::move(given);
  const bool whole = bytes == ssize_t(sizeof hello) && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
  return whole && hello.magic == Hello().magic && hello.zero == 0 ? Received::kHello : Received::kWrong;
}

// Sleeps until one of the sockets is readable, or a time slice has passed. Throws if the job has failed or
// the deadline has passed.
void wait_for(std::vector<pollfd>& sockets, const Watch& watch, const std::vector<int>& missing) {
  const WaitScope waiting(*watch.membership, Wait::for_ranks([&missing] { return missing; }));
  if (watch.membership->failed()) throw_wait(kOp, WaitResult::kFailed, watch, missing);
  if (watch.deadline.passed()) throw_wait(kOp, WaitResult::kTimeout, watch, missing);
  const Milliseconds slice = std::min(kSlice, watch.deadline.left());
  if (poll(sockets.data(), sockets.size(), int(slice.count())) < 0 && errno != EINTR) throw_errno("poll");
}

pollfd readable(const Descriptor& socket) { return {socket.get(), POLLIN, 0}; }

class ProcessSegments : public SegmentProvider {
 public:
  explicit ProcessSegments(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  std::shared_ptr<Segment> open(const std::string& key, const std::vector<int>& members, int index,
                                size_t bytes, const Watch& watch) override {
    const std::string store_key = "segment/" + key;
    const Descriptor memory =
        index == 0 ? give(store_key, members, bytes, watch) : take(store_key, members, index, bytes, watch);
    return std::make_shared<ProcessSegment>(memory, bytes);
  }

 private:
  // The first member's part: sends the memory to all others.
  Descriptor give(const std::string& key, const std::vector<int>& members, size_t bytes, const Watch& watch) {
    Descriptor memory = make_memory(bytes);
    if (members.size() == 1) return memory;
    const std::string name = random_name();
    const Address address(name);
    const Descriptor listener = make_socket();
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address.address), address.bytes) != 0)
      throw_errno("bind");
    if (listen(listener.get(), int(members.size())) != 0) throw_errno("listen");
    store_->set(key, name);

    std::vector<int> missing(members.begin() + 1, members.end());
    std::vector<Descriptor> waiting;  // connected, but their Hello has not come
    while (!missing.empty()) {
      std::vector<pollfd> sockets = {readable(listener)};
      for (const Descriptor& socket : waiting) sockets.push_back(readable(socket));
      wait_for(sockets, watch, missing);
      for (int rank : missing) check_left(kOp, watch, rank, [] { return true; });

      std::erase_if(waiting, [&](const Descriptor& socket) {
        Hello hello;
        const Received received = receive_hello(socket, hello);
        if (received == Received::kHello && hello.index < members.size() && hello.bytes == bytes &&
            send_hello(socket, hello, &memory))
          std::erase(missing, members[hello.index]);
        return received != Received::kNothingYet;
      });
      Descriptor next(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!next || !is_same_user(next)) continue;
      // Members send their Hello at once. Other processes that know the name must not hold members up.
      if (waiting.size() == 2 * members.size()) waiting.erase(waiting.begin());
      waiting.push_back(std::move(next));
    }
    store_->delete_key(key);
    return memory;
  }

  Descriptor take(const std::string& key, const std::vector<int>& members, int index, size_t bytes,
                  const Watch& watch) {
    const std::vector<int> missing = {members[0]};
    const std::string name = get_name(key, watch, missing);
    const Address address(name);
    Hello hello;
    hello.index = uint32_t(index);
    hello.bytes = bytes;
    // Tries again when the connection breaks. Then the first member is gone, and the membership soon says so.
    for (;;) {
      const Descriptor socket = make_socket();
      const bool connected =
          connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.address), address.bytes) == 0;
      if (connected && !is_same_user(socket))
        throw ConnectionError(kOp, members[0], "the socket of rank ", members[0], " belongs to another user");
      Descriptor memory;
      if (connected && send_hello(socket, hello) && wait_for_memory(socket, bytes, watch, missing, memory))
        return memory;
      std::vector<pollfd> none;
      wait_for(none, watch, missing);
      check_left(kOp, watch, members[0], [] { return true; });
    }
  }

  std::string get_name(const std::string& key, const Watch& watch, const std::vector<int>& missing) {
    std::string name;
    const WaitScope waiting(*watch.membership, Wait::for_ranks([&missing] { return missing; }));
    try {
      name = store_->get(key, watch.deadline.left());
    } catch (const TimeoutError&) {
      if (watch.membership->failed()) throw;
      throw_wait(kOp, WaitResult::kTimeout, watch, missing);
    }
    if (name.size() != kNameBytes || name.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw StoreError(kOp, missing[0], "the store's value of '", key, "' is no socket's name");
    return name;
  }

  // Returns false if the connection broke.
  static bool wait_for_memory(const Descriptor& socket, size_t bytes, const Watch& watch,
                              const std::vector<int>& missing, Descriptor& memory) {
    for (;;) {
      std::vector<pollfd> sockets = {readable(socket)};
      wait_for(sockets, watch, missing);
      Hello answer;
      const Received received = receive_hello(socket, answer, &memory);
      if (received == Received::kNothingYet) continue;
      return received == Received::kHello && memory && is_memory(memory, bytes);
    }
  }

  const std::shared_ptr<Store> store_;
};

// Returns the first line of a file, or "" if there is none.
std::string read_line(const char* path) {
  std::string line;
  std::getline(std::ifstream(path), line);
  return line;
}

}  // namespace

std::shared_ptr<SegmentProvider> make_process_segments(std::shared_ptr<Store> store) {
  return std::make_shared<ProcessSegments>(std::move(store));
}

std::string host_id() {
  constexpr size_t kMost = 256;
  if (const char* given = std::getenv("GRADUS_HOST_ID"); given && *given) {
    if (strnlen(given, kMost + 1) > kMost)
      throw ValueError("host_id", "GRADUS_HOST_ID is longer than ", kMost, " characters");
    return given;
  }
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return concat(read_line("/proc/sys/kernel/random/boot_id"), '/', network.st_dev, ':', network.st_ino, '/',
                geteuid());
}

}  // namespace gradus::dist::internal
