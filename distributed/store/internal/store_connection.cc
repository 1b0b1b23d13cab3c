#include "gradus/distributed/store/internal/store_connection.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

namespace gradus::dist::internal {
namespace {

constexpr Milliseconds kFirstPause{20}, kLongestPause{500};
// A server answers at once, unless its machine is busy. Another program at the port may never answer.
constexpr Milliseconds kFirstPatience{1'000}, kLongestPatience{5'000};

// Returns the deadline of one step. The last steps get a fair chance too, so that the error says what is
// wrong, and not that time was over.
Deadline step(const Deadline& deadline, Milliseconds limit) {
  return Deadline::after(std::clamp(deadline.left(), Milliseconds(100), limit));
}

}  // namespace

// One attempt to reach the server at one address.
class Greeting {
 public:
  enum class Outcome {
    kWelcome,
    kNobody,     // nothing listens there, or the server is busy: try again
    kUnwelcome,  // another program or job is there, or the server will never accept this client
  };

  Greeting(const SocketAddress& address, std::string_view token, Hello who, const Deadline& deadline)
      : deadline_(deadline) {
    outcome_ = greet(address, token, std::move(who));
  }
  Outcome outcome() const { return outcome_; }
  ConnectionError::Reason reason() const { return reason_; }
  const std::string& why() const { return why_; }
  StoreConnection& connection() { return *connection_; }

 private:
  Outcome greet(const SocketAddress& address, std::string_view token, Hello who) {
    Socket socket = connect_to(address, deadline_, &why_);
    if (!socket) return Outcome::kNobody;
    connection_ = StoreConnection(std::move(socket), address.port());

    who.nonce = random_nonce();
    const std::string hello = encode(who);
    Message answer;
    if (!ask(hello, &answer)) return outcome_;
    if (answer.type != MessageType::kChallenge) return refused(answer);
    const std::string challenge = encode(answer);

    const auto signed_by = [&](std::string_view side) {
      return prove(token, side, std::string_view(hello).substr(4), std::string_view(challenge).substr(4));
    };
    if (!ask(encode({MessageType::kProof, {}, {signed_by("client")}}), &answer)) return outcome_;
    if (answer.type != MessageType::kWelcome) return refused(answer);
    if (equal_proofs(answer.texts[0], signed_by("server"))) return Outcome::kWelcome;
    why_ = "it does not know this job's token";
    reason_ = ConnectionError::Reason::kTokenMismatch;
    return Outcome::kUnwelcome;
  }

  // Sends a frame and waits for the answer. Returns false and sets outcome_ if no answer came.
  bool ask(std::string_view frame, Message* answer) {
    Io io = connection_->send(frame, deadline_, &why_);
    if (io == Io::kDone) io = connection_->receive(answer, deadline_, &why_);
    if (io == Io::kTimeout)
      why_ = concat("who listens there did not answer within ", deadline_.timeout().count(), " ms");
    outcome_ = connection_->bad_ ? Outcome::kUnwelcome : Outcome::kNobody;
    return io == Io::kDone;
  }

  Outcome refused(const Message& answer) {
    if (answer.type != MessageType::kRefused) {
      why_ = "something that is no Gradus store answers there";
      return Outcome::kUnwelcome;
    }
    why_ = "the store refused: " + std::string(answer.texts[0].substr(0, 1000));
    const auto refusal = static_cast<Refusal>(answer.numbers[0]);
    reason_ = refusal == Refusal::kToken ? ConnectionError::Reason::kTokenMismatch
                                         : ConnectionError::Reason::kRefused;
    switch (refusal) {
      case Refusal::kNotYet:
      case Refusal::kFull:
        return Outcome::kNobody;
      default:
        return Outcome::kUnwelcome;
    }
  }

  const Deadline deadline_;
  Outcome outcome_ = Outcome::kNobody;
  ConnectionError::Reason reason_ = ConnectionError::Reason::kUnreachable;
  std::string why_;
  std::optional<StoreConnection> connection_;
};

StoreConnection StoreConnection::open(const char* op, const StoreAddress& address, Hello who,
                                      const Deadline& deadline, bool retry) {
  if (address.port < 1 || address.port > 65535)
    throw ValueError(op, "port is ", address.port, "; it must be in 1..65535");
  const std::string place = concat(address.host, ':', address.port);
  who.job_id = address.job_id;
  Milliseconds pause = kFirstPause, patience = retry ? kFirstPatience : kLongestPatience;
  for (;;) {
    // What was wrong at each address of the host.
    std::set<std::string> reasons;
    auto reason = ConnectionError::Reason::kUnreachable;
    std::string why;
    const std::vector<SocketAddress> found =
        resolve(address.host, address.port, step(deadline, kLongestPatience), &why);
    if (found.empty()) reasons.insert(concat("the host name '", address.host, "' does not resolve: ", why));
    for (const SocketAddress& one : found) {
      Greeting greeting(one, address.token, who, step(deadline, patience));
      if (greeting.outcome() == Greeting::Outcome::kWelcome) return std::move(greeting.connection());
      if (greeting.outcome() == Greeting::Outcome::kUnwelcome)
        throw ConnectionError(greeting.reason(), op, -1, "no connection to the store at ", place, ": ",
                              greeting.why());
      reasons.insert(greeting.why());
      if (greeting.reason() != ConnectionError::Reason::kUnreachable) reason = greeting.reason();
    }
    if (deadline.passed() || !retry) {
      std::string all;
      for (const std::string& text : reasons) all += concat(all.empty() ? "" : "; ", text);
      const std::string limit = retry ? concat(" within ", deadline.timeout().count(), " ms") : "";
      throw ConnectionError(reason, op, -1, "no connection to the store at ", place, limit, ": ", all);
    }
    std::this_thread::sleep_for(std::min(pause, deadline.left()));
    pause = std::min(pause * 2, kLongestPause);
    patience = std::min(patience * 2, kLongestPatience);
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
  bad_ = true;
  return {};
}

Io StoreConnection::read(std::string* why, const Deadline& deadline) {
  if (bad_) {
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
    const Io io = read(why, Deadline::after(begun ? std::max(deadline.left(), patience) : deadline.left()));
    if (io != Io::kDone) return io;
  }
}

}  // namespace gradus::dist::internal
