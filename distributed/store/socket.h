// Non-blocking TCP sockets with deadlines, and addresses of hosts. Every call that may block ends at its
// deadline. No function throws for a network error; `why`, which is never null, gets the reason as text.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/file_descriptor.h"

namespace gradus::dist::internal {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_loopback() const;
  int port() const;
  std::string host() const;  // "10.0.0.1", "::1"; "" if it has none
  std::string text() const;  // "10.0.0.1:29500", "[::1]:29500"
};

// Returns whether a host name or address is one of loopback.
bool is_loopback(const std::string& host);
// Returns the address of this host that a peer sees, or "". Sends no packet.
std::string address_toward(const std::string& host, int port, const Deadline& deadline);
// Returns the IPv4 address of this host's first interface that is up and not loopback, or "".
std::string non_loopback_address();

// Returns the addresses of a host name. Returns none, and sets `why`, if there is no such host or the name
// service does not answer.
std::vector<SocketAddress> resolve(const std::string& host, int port, const Deadline& deadline,
                                   std::string* why);

// Connects. Returns null and sets `why` ("connection refused") on failure. The socket is
// non-blocking and close-on-exec.
FileDescriptor connect_to(const SocketAddress& address, const Deadline& deadline, std::string* why);
// Listens. Port 0: any free one. On failure returns null, sets `why`, and sets `taken` if the port is in use.
FileDescriptor listen_at(const SocketAddress& address, std::string* why, bool* taken);
// Returns the address that a socket is bound to; length 0 on failure.
SocketAddress local_address(const FileDescriptor& socket);

// Sets a connection's options: small messages go out at once, and a dead peer machine is noticed
// after about 10 s.
void set_up_connection(const FileDescriptor& socket);

// The outcomes of send_all and receive_some. kClosed: the peer has closed the connection, or an error.
enum class Io { kDone, kClosed, kTimeout };
// Sends all bytes. Both functions need a non-blocking socket, and set `why` unless kDone.
Io send_all(const FileDescriptor& socket, std::string_view bytes, const Deadline& deadline, std::string* why);
// Waits for some bytes and appends them, at most `limit`.
Io receive_some(const FileDescriptor& socket, std::string* bytes, const Deadline& deadline, std::string* why,
                size_t limit = size_t(-1));

}  // namespace gradus::dist::internal
