// Non-blocking TCP sockets with deadlines, on POSIX. Calls that may block wait with poll(2) until the
// deadline. getaddrinfo has no deadline, so it runs in a thread that is abandoned at the deadline. Failures
// set `why` (never null) to a text for errors; no function throws for a network error.
#include "gradus/distributed/store/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

namespace gradus::dist::internal {
namespace {

// The result of a name look-up. Shared with the thread of the look-up, which may outlive the caller.
struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::vector<SocketAddress> found;
  std::string why;
};

SocketAddress address_of(const sockaddr* address, socklen_t length) {
  SocketAddress result{.length = length};
  std::memcpy(&result.storage, address, length);
  return result;
}

// Calls getaddrinfo and stores the addresses, or why there are none. `flags` are those of addrinfo.
void look_up(const std::string& host, int port, int flags, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const std::string why = error == EAI_SYSTEM ? errno_text() : error ? ::gai_strerror(error) : "";
  std::lock_guard lock(lookup.mutex);
  lookup.why = why;
  for (addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (a->ai_addrlen > sizeof(sockaddr_storage)) continue;
    lookup.found.push_back(address_of(a->ai_addr, a->ai_addrlen));
  }
  if (list != nullptr) ::freeaddrinfo(list);
  lookup.done = true;
  lookup.changed.notify_all();
}

// Waits until the socket is ready for `events`. Sets `why` and returns kTimeout at the deadline,
// kClosed after an error of poll.
Io wait_ready(int fd, short events, const Deadline& deadline, std::string* why) {
  for (;;) {
    pollfd p{fd, events, 0};
    const auto left = std::min(deadline.remaining(), Milliseconds(1'000'000));
    const int n = ::poll(&p, 1, static_cast<int>(left.count()));
    if (n > 0) return Io::kDone;
    if (n < 0 && errno != EINTR) {
      *why = errno_text();
      return Io::kClosed;
    }
    if (deadline.passed()) {
      *why = "no answer";
      return Io::kTimeout;
    }
  }
}

void set_option(int fd, int level, int name, int value) {
  // Errors are ignored: no option is needed for a correct result.
  (void)::setsockopt(fd, level, name, &value, sizeof value);
}

// Whether a call should be tried again after waiting for the socket.
bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto& a = reinterpret_cast<const sockaddr_in&>(storage);
    return (ntohl(a.sin_addr.s_addr) >> 24) == 127;
  }
  return storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

int SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

std::string SocketAddress::host() const {
  char host[NI_MAXHOST] = "";
  return ::getnameinfo(get(), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

std::string SocketAddress::text() const {
  return (storage.ss_family == AF_INET6 ? '[' + host() + ']' : host()) + ':' + std::to_string(port());
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string address_toward(const std::string& host, int port, const Deadline& deadline) {
  std::string why;
  for (const SocketAddress& peer : resolve(host, port, deadline, &why)) {
    // Connecting a UDP socket selects the route, and with it the local address, and sends nothing.
    const FileDescriptor socket(::socket(peer.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.fd(), peer.get(), peer.length) == 0) return local_address(socket).host();
  }
  return "";
}

std::string non_loopback_address() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* at = all; at && found.empty(); at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) &&
        !(at->ifa_flags & IFF_LOOPBACK))
      found = address_of(at->ifa_addr, sizeof(sockaddr_in)).host();
  ::freeifaddrs(all);
  return found;
}

std::vector<SocketAddress> resolve(const std::string& host, int port, const Deadline& deadline,
                                   std::string* why) {
  auto lookup = std::make_shared<Lookup>();
  look_up(host, port, AI_NUMERICHOST, *lookup);
  if (!lookup->found.empty()) return lookup->found;
  // The name service has its own time limits. If it takes longer than the deadline, its thread is abandoned.
  lookup = std::make_shared<Lookup>();
  std::thread([host, port, lookup] { look_up(host, port, 0, *lookup); }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->changed.wait_until(lock, deadline.time(), [&] { return lookup->done; })) {
    *why = "the name service did not answer in time";
    return {};
  }
  *why = lookup->why;
  return lookup->found;
}

FileDescriptor connect_to(const SocketAddress& address, const Deadline& deadline, std::string* why) {
  FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) {
    *why = errno_text();
    return {};
  }
  int error = ::connect(socket.fd(), address.get(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (wait_ready(socket.fd(), POLLOUT, deadline, why) != Io::kDone) return {};
    socklen_t size = sizeof error;
    if (::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  // If nobody listens at a port from the ephemeral range, the kernel may connect a socket to itself.
  const SocketAddress own = local_address(socket);
  if (error == 0 && own.length == address.length && own.text() == address.text()) error = ECONNREFUSED;
  if (error != 0) {
    *why = error == ECONNREFUSED ? "connection refused" : errno_text(error);
    return {};
  }
  set_up_connection(socket);
  return socket;
}

FileDescriptor listen_at(const SocketAddress& address, std::string* why, bool* taken) {
  FileDescriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket) set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (!socket || ::bind(socket.fd(), address.get(), address.length) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    *taken = errno == EADDRINUSE;
    *why = errno_text();
    return {};
  }
  return socket;
}

SocketAddress local_address(const FileDescriptor& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    address.length = 0;
  return address;
}

void set_up_connection(const FileDescriptor& socket) {
  set_option(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  // A dead peer is detected after 10 s: 1 s without traffic, then 9 probes at intervals of 1 s. Many probes,
  // because the loss of some does not mean that the peer is dead. TCP_USER_TIMEOUT (milliseconds) covers data
  // that is not acknowledged.
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, 9);
  set_option(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
}

Io send_all(const FileDescriptor& socket, std::string_view bytes, const Deadline& deadline,
            std::string* why) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (!would_block(errno)) {
      *why = errno_text();
      return Io::kClosed;
    } else if (const Io io = wait_ready(socket.fd(), POLLOUT, deadline, why); io != Io::kDone) {
      return io;
    }
  }
  return Io::kDone;
}

Io receive_some(const FileDescriptor& socket, std::string* bytes, const Deadline& deadline, std::string* why,
                size_t limit) {
  char chunk[64 << 10];
  for (;;) {
    const ssize_t n = ::recv(socket.fd(), chunk, std::min(sizeof chunk, limit), 0);
    if (n > 0) {
      bytes->append(chunk, static_cast<size_t>(n));
      return Io::kDone;
    }
    if (n == 0 || !would_block(errno)) {
      *why = n == 0 ? "connection closed" : errno_text();
      return Io::kClosed;
    }
    if (const Io io = wait_ready(socket.fd(), POLLIN, deadline, why); io != Io::kDone) return io;
  }
}

}  // namespace gradus::dist::internal
