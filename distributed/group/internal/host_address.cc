#include "gradus/distributed/group/internal/host_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include "gradus/distributed/store/socket.h"

namespace gradus::dist::internal {
namespace {

std::string text_of(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  return getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0 ? host : "";
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string address_toward(const std::string& host, int port, const Deadline& deadline) {
  std::string why;
  for (const SocketAddress& peer : resolve(host, port, deadline, &why)) {
    const FileDescriptor socket(::socket(peer.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.fd(), peer.get(), peer.length) == 0) {
      const SocketAddress own = local_address(socket);
      return text_of(own.get(), own.length);
    }
  }
  return "";
}

std::string own_address() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* at = all; at && found.empty(); at = at->ifa_next)
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) &&
        !(at->ifa_flags & IFF_LOOPBACK))
      found = text_of(at->ifa_addr, sizeof(sockaddr_in));
  freeifaddrs(all);
  return found;
}

}  // namespace gradus::dist::internal
