// StoreConnection: the client's side of the store's TCP protocol. Handshake of mutual challenge and response:
// hello with a random nonce, the server's challenge, then a proof from each side, the HMAC-SHA256 of both
// frames keyed by the job's token. open() tries all addresses of the host again, with growing pauses, until
// the deadline.
#include "gradus/distributed/store/internal/store_connection.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace gradus::dist::internal {
namespace {

constexpr Milliseconds kFirstPause{20}, kMaxPause{500};
// Time limit of one handshake, doubled after each failure. A server answers at once, unless its machine is
// busy; another program at the port may never answer.
constexpr Milliseconds kFirstPatience{1'000}, kMaxPatience{5'000};

// Returns the deadline of one name look-up or handshake: `limit`, or the time left but at least 100 ms, so
// that the error of the last attempt names the cause and not the deadline.
Deadline step(const Deadline& deadline, Milliseconds limit) {
  return Deadline::after(std::clamp(deadline.remaining(), Milliseconds(100), limit));
}

}  // namespace

// Why one attempt to reach the server at one address failed.
struct StoreConnection::GreetingFailure {
  ConnectionError::Reason reason = ConnectionError::Reason::kUnreachable;
  bool final = false;  // another program or job is there, or the server will never accept this client
  std::string why;
};

std::optional<StoreConnection> StoreConnection::greet(const SocketAddress& address, std::string_view token,
                                                      Hello who, const Deadline& deadline,
                                                      GreetingFailure& failure) {
  FileDescriptor socket = connect_to(address, deadline, &failure.why);
  if (!socket) return {};
  StoreConnection connection(std::move(socket));
  // Sends a frame. Returns the answer if it has the expected type.
  // Otherwise returns nullopt and sets `failure`.
  const auto query = [&](std::string_view frame, MessageType expected) -> std::optional<Message> {
    Message answer{expected, {}, {}};
    Io io = connection.send(frame, deadline, &failure.why);
    if (io == Io::kDone) io = connection.receive(&answer, deadline, &failure.why);
    if (io == Io::kDone && answer.type == expected) return answer;
    if (io == Io::kTimeout)
      failure.why = concat("who listens there did not answer within ", deadline.timeout().count(), " ms");
    failure.final = connection.protocol_error_;
    if (io != Io::kDone) return {};
    failure.final = true;
    failure.why = "something that is no Gradus store answers there";
    if (answer.type != MessageType::kRefused) return {};
    const auto refusal = static_cast<Refusal>(answer.numbers[0]);
    failure.why = "the store refused: " + std::string(answer.texts[0].substr(0, 1000));
    failure.final = refusal != Refusal::kAttemptNotBegun && refusal != Refusal::kFull;
    failure.reason = refusal == Refusal::kToken ? ConnectionError::Reason::kTokenMismatch
                                                : ConnectionError::Reason::kRefused;
    return {};
  };
  who.nonce = random_nonce();
  const std::string hello = encode(who);
  const std::optional<Message> challenge = query(hello, MessageType::kChallenge);
  if (!challenge) return {};
  const std::string challenge_frame = encode(*challenge);
  const auto proof_of = [&](std::string_view side) {
    return make_proof(token, side, std::string_view(hello).substr(4),
                      std::string_view(challenge_frame).substr(4));
  };
  const std::optional<Message> welcome =
      query(encode({MessageType::kProof, {}, {proof_of("client")}}), MessageType::kWelcome);
  if (!welcome) return {};
  if (equal_proofs(welcome->texts[0], proof_of("server"))) return connection;
  failure = {ConnectionError::Reason::kTokenMismatch, true, "it does not know this job's token"};
  return {};
}

StoreConnection StoreConnection::open(const char* op, const StoreAddress& address, Hello who,
                                      const Deadline& deadline, bool retry) {
  if (address.port < 1 || address.port > 65535)
    throw ValueError(op, "port is ", address.port, "; it must be in 1..65535");
  const std::string place = concat(address.host, ':', address.port);
  who.job_id = address.job_id;
  Milliseconds pause = kFirstPause, patience = retry ? kFirstPatience : kMaxPatience;
  for (;;) {
    // The errors of all addresses of the host.
    std::set<std::string> reasons;
    auto reason = ConnectionError::Reason::kUnreachable;
    std::string why;
    const std::vector<SocketAddress> found =
        resolve(address.host, address.port, step(deadline, kMaxPatience), &why);
    if (found.empty()) reasons.insert(concat("the host name '", address.host, "' does not resolve: ", why));
    for (const SocketAddress& one : found) {
      GreetingFailure failure;
      if (auto connection = greet(one, address.token, who, step(deadline, patience), failure))
        return std::move(*connection);
      if (failure.final)
        throw ConnectionError(failure.reason, op, -1, "no connection to the store at ", place, ": ",
                              failure.why);
      reasons.insert(failure.why);
      if (failure.reason != ConnectionError::Reason::kUnreachable) reason = failure.reason;
    }
    if (deadline.passed() || !retry) {
      std::string all;
      for (const std::string& text : reasons) all += concat(all.empty() ? "" : "; ", text);
      const std::string limit = retry ? concat(" within ", deadline.timeout().count(), " ms") : "";
      throw ConnectionError(reason, op, -1, "no connection to the store at ", place, limit, ": ", all);
    }
    std::this_thread::sleep_for(std::min(pause, deadline.remaining()));
    pause = std::min(pause * 2, kMaxPause);
    patience = std::min(patience * 2, kMaxPatience);
  }
}

Io StoreConnection::send(std::string_view frame, const Deadline& deadline, std::string* why) {
  return send_all(socket_, frame, deadline, why);
}

std::optional<Message> StoreConnection::next() {
  std::string_view body;
  const FrameReader::State state = in_.next(kMaxFrame, &body);
  if (state == FrameReader::State::kPartial) return {};
  if (state == FrameReader::State::kFrame)
    if (std::optional<Message> message = parse(body)) return message;
  protocol_error_ = true;
  return {};
}

Io StoreConnection::read(std::string* why, const Deadline& deadline) {
  if (protocol_error_) {
    *why = "something that is no Gradus store answers there";
    return Io::kClosed;
  }
  std::string bytes;
  const Io io = receive_some(socket_, &bytes, deadline, why);
  in_.append(bytes);
  return io;
}

Io StoreConnection::receive(Message* message, const Deadline& deadline, std::string* why,
                            Milliseconds patience) {
  for (;;) {
    if (std::optional<Message> found = next()) {
      *message = *found;
      return Io::kDone;
    }
    const bool begun = in_.pending() > 0;
    const Io io =
        read(why, Deadline::after(begun ? std::max(deadline.remaining(), patience) : deadline.remaining()));
    if (io != Io::kDone) return io;
  }
}

}  // namespace gradus::dist::internal
