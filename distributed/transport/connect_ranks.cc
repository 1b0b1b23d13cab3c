// Establishes one TCP connection per pair of ranks. Each rank listens on a free port and publishes address,
// port and one random secret per peer under the key "sockets/<rank>" of the job's store. The higher rank of a
// pair connects and sends its rank and its secret for the peer; the lower rank answers with its own secret.
// Each side compares with the store, so a stranger at the port is dropped. `WaitLimits` has the deadline and the
// job's membership (who failed or left).
#include "gradus/distributed/transport/connect_ranks.h"

#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <thread>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/health/waiting.h"
#include "gradus/distributed/store/socket.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "init_process_group";
// How often a wait checks whether the job has failed; and the time limit of one attempt to connect.
constexpr Milliseconds kPoll{50}, kAttemptLimit{1000};
// How long the job's failure may take to become known after a connection broke. After that, the broken
// connection is reported as the failure.
constexpr Milliseconds kFailureDelay{1000};
constexpr size_t kSecretBytes = 32, kHelloBytes = sizeof(int32_t) + kSecretBytes;
constexpr size_t kMaxStrangers = 64;  // clients of the port that have not proven to be a rank

std::string key_of(int rank) { return concat("sockets/", rank); }

class Connector {
 public:
  Connector(const ConnectOptions& options, const WaitLimits& watch) : options_(options), watch_(watch) {}

  // Ranks connect to lower ranks, in order, before they accept. A wait for an answer therefore ends, by
  // induction over ranks.
  std::map<int, FileDescriptor> run() {
    const FileDescriptor listener = listen();
    publish(local_address(listener).port());
    for (int peer : options_.peers) contacts_[peer] = read_contact(peer);
    std::vector<int> awaited;
    for (const auto& [peer, contact] : contacts_) {
      if (peer < options_.rank)
        connect(peer, contact);
      else
        awaited.push_back(peer);
    }
    accept(listener, std::move(awaited));
    return std::move(sockets_);
  }

 private:
  // Where a rank listens, and the secret by which it proves itself to a peer.
  struct Contact {
    std::string host;
    int port = 0;
    std::string secret;
  };
  struct Client {
    FileDescriptor socket;
    std::string hello;  // the bytes received so far: rank (i32), secret
  };

  FileDescriptor listen() const {
    const std::string host = options_.address.empty() ? "127.0.0.1" : options_.address;
    std::string why;
    bool taken = false;
    for (const SocketAddress& address : resolve(host, 0, watch_.deadline, &why))
      if (FileDescriptor socket = listen_at(address, &why, &taken)) return socket;
    throw ConnectionError(kOp, -1, "cannot listen at the address ", host, " of this host: ", why);
  }

  // Sets own_secrets_, and publishes them with the port.
  void publish(int port) {
    std::vector<std::pair<int, std::string>> secrets;
    for (int peer : options_.peers)
      secrets.emplace_back(peer, own_secrets_[peer] = random_hex(kOp, kSecretBytes));
    const std::string host = options_.address.empty() ? "127.0.0.1" : options_.address;
    options_.store->set(key_of(options_.rank), to_wire(std::pair(std::pair(host, port), secrets)));
  }

  Contact read_contact(int peer) const {
    std::string bytes;
    const WaitScope waiting(*watch_.membership, Wait::for_ranks([peer] { return std::vector{peer}; }));
    try {
      bytes = options_.store->get(key_of(peer), watch_.deadline.remaining());
    } catch (const TimeoutError&) {
      throw_wait(kOp, watch_.membership->failed() ? WaitResult::kFailed : WaitResult::kTimeout, watch_,
                 {peer});
    }
    using Endpoint = std::pair<std::string, int>;
    const auto [endpoint, secrets] =
        from_wire<std::pair<Endpoint, std::vector<std::pair<int, std::string>>>>(bytes);
    const auto own = std::ranges::find(secrets, options_.rank, &std::pair<int, std::string>::first);
    if (own == secrets.end() || own->second.size() != kSecretBytes) WireReader::throw_malformed();
    return {endpoint.first, endpoint.second, own->second};
  }

  // ---- connections to lower ranks

  void connect(int peer, const Contact& contact) {
    const WaitScope waiting(*watch_.membership, Wait::for_ranks([peer] { return std::vector{peer}; }));
    std::string why;
    for (;;) {
      check({peer});
      const Deadline limit = watch_.deadline.within(kAttemptLimit);
      FileDescriptor socket;
      for (const SocketAddress& address : resolve(contact.host, contact.port, limit, &why))
        if ((socket = connect_to(address, limit, &why))) break;
      if (socket) return greet(peer, contact, std::move(socket));
      if (!limit.passed()) throw_unreachable(peer, why);
    }
  }

  // Proves this rank to the peer, and waits for the peer's proof.
  void greet(int peer, const Contact& contact, FileDescriptor socket) {
    std::string why, answer;
    const std::string hello = to_wire(int32_t(options_.rank)) + own_secrets_.at(peer);
    if (send_all(socket, hello, watch_.deadline, &why) != Io::kDone) throw_unreachable(peer, why);
    while (answer.size() < kSecretBytes) {
      check_job({peer});  // the peer may have answered and left: its answer, or the connection's end, arrives
      const Deadline limit = Deadline::after(kPoll);
      if (receive_some(socket, &answer, limit, &why, kSecretBytes - answer.size()) == Io::kClosed)
        throw_unreachable(peer, why);
    }
    if (answer != contact.secret) throw_unreachable(peer, "another process came in place of the rank");
    add_socket(peer, std::move(socket));
  }

  // ---- connections from higher ranks

  // Accepts until all `awaited` ranks are connected. Beyond a limit, the oldest unproven client is dropped.
  void accept(const FileDescriptor& listener, std::vector<int> awaited) {
    std::vector<Client> clients;
    while (!awaited.empty()) {
      const WaitScope waiting(*watch_.membership, Wait::for_ranks([&] { return awaited; }));
      check(awaited);
      std::vector<pollfd> fds = {{listener.fd(), POLLIN, 0}};
      for (const Client& client : clients) fds.push_back({client.socket.fd(), POLLIN, 0});
      if (::poll(fds.data(), fds.size(), int(kPoll.count())) <= 0) continue;
      for (size_t i = 0; i < clients.size(); ++i)
        if (fds[i + 1].revents) read_hello(clients[i], awaited);
      std::erase_if(clients, [](const Client& client) { return !client.socket; });
      if (fds[0].revents) accept_one(listener, clients);
      if (clients.size() > kMaxStrangers + awaited.size()) clients.erase(clients.begin());
    }
  }

  void accept_one(const FileDescriptor& listener, std::vector<Client>& clients) const {
    FileDescriptor socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
      throw ConnectionError(kOp, -1, "cannot accept connections of other ranks: ", errno_text());
    if (!socket) return;  // the client is gone already
    set_up_connection(socket);
    clients.push_back({std::move(socket), ""});
  }

  // Answers a client that has proven to be an awaited rank, and drops one that has not.
  void read_hello(Client& client, std::vector<int>& awaited) {
    std::string why;
    const Io io = receive_some(client.socket, &client.hello, Deadline::after(Milliseconds(0)), &why,
                               kHelloBytes - client.hello.size());
    if (io == Io::kClosed) return client.socket.close();
    if (client.hello.size() < kHelloBytes) return;
    WireReader reader(client.hello);
    int32_t peer = -1;
    reader.get(peer);
    const auto found = std::ranges::find(awaited, int(peer));
    if (found == awaited.end() || reader.read_bytes(kSecretBytes) != contacts_.at(peer).secret)
      return client.socket.close();
    if (send_all(client.socket, own_secrets_.at(peer), watch_.deadline, &why) != Io::kDone)
      throw_unreachable(peer, why);
    add_socket(peer, std::exchange(client.socket, {}));
    awaited.erase(found);
  }

  void add_socket(int peer, FileDescriptor socket) {
    // A receiver may not read for a long time. TCP's probes of its full window must not end the connection.
    const int unlimited = 0;
    (void)::setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unlimited, sizeof unlimited);
    sockets_.emplace(peer, std::move(socket));
  }

  // Throws if the job has failed, one of the missing ranks has left, or the deadline has passed.
  void check(const std::vector<int>& missing) const {
    check_job(missing);
    for (int rank : missing) check_left(kOp, watch_, rank, [] { return true; });
  }
  // Throws if the job has failed or time is over.
  void check_job(const std::vector<int>& missing) const {
    if (watch_.membership->failed()) throw_wait(kOp, WaitResult::kFailed, watch_, missing);
    if (watch_.deadline.passed()) throw_wait(kOp, WaitResult::kTimeout, watch_, missing);
  }

  // Reports the peer's death, unless the job's own failure becomes known within kFailureDelay.
  [[noreturn]] void throw_unreachable(int peer, const std::string& why) const {
    const Deadline limit = watch_.deadline.within(kFailureDelay);
    while (!watch_.membership->failed() && !limit.passed()) std::this_thread::sleep_for(Milliseconds(10));
    const std::string text = concat("rank ", options_.rank, " cannot connect to rank ", peer, ": ", why);
    throw_failure(kOp, watch_.membership->report({Failure::Kind::kDied, peer, text}));
  }

  const ConnectOptions& options_;
  const WaitLimits& watch_;
  std::map<int, Contact> contacts_;         // by peer
  std::map<int, std::string> own_secrets_;  // by peer; this rank sends them
  std::map<int, FileDescriptor> sockets_;
};

}  // namespace

std::map<int, FileDescriptor> connect_ranks(const ConnectOptions& options, const WaitLimits& watch) {
  return Connector(options, watch).run();
}

}  // namespace gradus::dist::internal
