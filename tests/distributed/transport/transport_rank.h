// For transport tests: a rank that sends and receives strings; transports over shared memory or sockets.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/transport/connect_ranks.h"
#include "gradus/distributed/transport/stream_transport.h"

namespace gradus::dist::internal {

struct TransportRank {
  int rank;
  std::shared_ptr<Membership> membership;
  std::shared_ptr<Transport> transport;

  WaitLimits watch(Milliseconds timeout = Milliseconds(60'000)) const {
    return {membership.get(), Deadline::after(timeout)};
  }
  static Tag tag(uint32_t number) { return {1, Channel::kUser, number}; }

  Ref<Request> start_send(int peer, uint32_t number, const std::string& text,
                          const std::string& header = "") const {
    return transport->send(peer, tag(number), std::as_bytes(std::span(header)),
                           std::as_bytes(std::span(text)));
  }
  void send(int peer, uint32_t number, const std::string& text, const std::string& header = "") const {
    wait(start_send(peer, number, text, header));
  }
  // `into` gets the size of the message. `sources`: allowed senders if peer is kAnySource.
  Ref<Request> start_receive(int peer, uint32_t number, std::string& into, std::string* header = nullptr,
                             std::vector<int> sources = {}) const {
    const auto accept = [&into, header](int, std::span<const std::byte> given, size_t bytes) -> void* {
      if (header) *header = std::string(reinterpret_cast<const char*>(given.data()), given.size());
      into.assign(bytes, '?');
      return into.data();
    };
    return transport->receive(peer, tag(number), accept, std::move(sources));
  }
  std::string receive(int peer, uint32_t number, Milliseconds timeout = Milliseconds(60'000)) const {
    std::string text;
    transport->wait(*start_receive(peer, number, text), watch(timeout), "recv");
    return text;
  }
  void wait(const Ref<Request>& request) const { transport->wait(*request, watch(), "test"); }
};

// Makes the transports of ranks that share memory.
inline std::vector<std::shared_ptr<Transport>> make_ring_transports(
    const std::vector<std::shared_ptr<Membership>>& memberships) {
  std::vector<int> ranks;
  for (const auto& membership : memberships) ranks.push_back(membership->rank());
  const auto segment = std::make_shared<Segment>(ring_bytes(int(ranks.size())));
  std::vector<std::shared_ptr<Transport>> transports;
  for (int rank : ranks)
    transports.push_back(make_stream_transport(segment, memberships[size_t(rank)], ranks, rank));
  return transports;
}

// Makes the transport of a rank that has a TCP connection to each other rank. Collective over the ranks.
inline std::shared_ptr<Transport> make_socket_transport(int rank, int size, std::shared_ptr<Store> store,
                                                        std::shared_ptr<Membership> membership,
                                                        const WaitLimits& watch) {
  std::vector<int> peers;
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) peers.push_back(peer);
  auto sockets = connect_ranks({rank, peers, std::move(store), "127.0.0.1"}, watch);
  return make_stream_transport(std::make_shared<Segment>(ring_bytes(1)), std::move(membership), {rank}, 0,
                               std::move(sockets));
}

// Returns a text that depends on the seed.
inline std::string text_of(size_t bytes, int seed) {
  std::string text(bytes, ' ');
  for (size_t i = 0; i < bytes; ++i) text[i] = char('A' + (seed + i % 251 + i / 1000) % 50);
  return text;
}

}  // namespace gradus::dist::internal
