// Fuzz target: drives a store's server, without its sockets, by arbitrary bytes (tools/fuzz.sh store).
// store_fuzz_test replays some.
//
// The input is a script: which clients connect, what bytes each sends, how much of the answers it reads, how
// time passes. Under any script the server must not crash, must send each client only well-formed messages of
// its role, must keep its first failure, and must serve an honest client at the end.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "gradus/distributed/store/internal/status_wire.h"
#include "gradus/distributed/store/internal/store_service.h"

namespace gradus::dist::internal {
namespace {

#define FUZZ_CHECK(condition)                                                          \
  do {                                                                                 \
    if (!(condition)) {                                                                \
      std::fprintf(stderr, "store_fuzz: line %d: not so: %s\n", __LINE__, #condition); \
      std::abort();                                                                    \
    }                                                                                  \
  } while (false)

// Reads a script; zeros after its end.
class Script {
 public:
  explicit Script(std::string_view bytes) : left_(bytes) {}
  bool done() const { return left_.empty(); }
  uint8_t byte() {
    if (left_.empty()) return 0;
    const auto value = static_cast<uint8_t>(left_[0]);
    left_.remove_prefix(1);
    return value;
  }
  std::string_view bytes(size_t count) {
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view left_;
};

class Driver {
 public:
  void run(Script script) {
    while (!script.done()) step(script);
    finish();
  }

 private:
  using Id = StoreService::Id;
  // What the server has sent to one connection, as its client sees it.
  struct Peer {
    Role role = Role::kClient;
    bool proven = false;
    FrameReader in;
  };

  // Runs one step, whose kind is the first byte modulo 14.
  void step(Script& script) {
    switch (script.byte() % 14) {
      case 0:
        if (peers_.size() < 40) peers_[service_.connect(now_)];
        break;
      case 1:
        enter({.role = Role::kClient, .attempt = script.byte() % 2 ? attempt_ : kAnyAttempt});
        break;
      case 2:
        enter({.role = Role::kMember, .attempt = attempt_, .rank = script.byte() % 3, .world_size = 3});
        break;
      case 3:
        enter({.role = Role::kLauncher, .attempt = kAnyAttempt, .name = "node 1"});
        break;
      case 4: {  // any bytes
        const Id id = some(script);
        const size_t count = script.byte();
        send(id, script.bytes(count));
        break;
      }
      case 5: {  // any bytes as a frame
        const Id id = some(script);
        const size_t count = script.byte();
        const std::string_view body = script.bytes(count);
        check_parse(body);
        std::string frame;
        for (int i = 0; i < 4; ++i) frame += static_cast<char>(body.size() >> (8 * i));
        send(id, frame.append(body));
        break;
      }
      case 6:
      case 7:
      case 8: {  // a message, perhaps in two parts
        const Id id = some(script);
        const std::string frame = message(script);
        const size_t cut = script.byte() % 3 ? frame.size() : std::min<size_t>(script.byte(), frame.size());
        send(id, std::string_view(frame).substr(0, cut));
        send(id, std::string_view(frame).substr(cut));
        break;
      }
      case 9:
        take(some(script), script.byte());
        break;
      case 10:
        if (const Id id = some(script)) disconnect(id);
        break;
      case 11:
        now_ += Milliseconds(1 << (script.byte() % 18));
        service_.expire(now_);
        break;
      case 12:
        service_.begin_attempt(attempt_ = script.byte() % 4, now_);
        failure_.reset();
        FUZZ_CHECK(!service_.failure());
        break;
      case 13:
        service_.report({.kind = Failure::Kind::kDied, .rank = script.byte() % 3, .text = "said a launcher"});
        break;
    }
    check_failure();
    // As the real server does, after each event.
    for (const Id id : service_.pop_changed())
      if (service_.should_close(id) && service_.output(id).empty()) disconnect(id);
  }

  // A connection, or 0 when there is none.
  Id some(Script& script) {
    const uint8_t which = script.byte();
    if (peers_.empty()) return 0;
    return std::next(peers_.begin(), which % peers_.size())->first;
  }

  // Connects a client with the right token. Returns its connection, or 0 if there are 40.
  Id enter(Hello hello) {
    if (peers_.size() >= 40) return 0;
    const Id id = service_.connect(now_);
    Peer& peer = peers_[id];
    hello.job_id = "job";
    hello.nonce = std::string(kNonceBytes, 'n');
    const std::string frame = encode(hello);
    service_.receive(id, frame, now_);
    const std::string challenge(service_.output(id));
    service_.mark_sent(id, challenge.size(), now_);
    if (service_.should_close(id)) return id;  // full
    service_.receive(
        id,
        encode(
            {MessageType::kProof, {}, {make_proof("token", "client", frame.substr(4), challenge.substr(4))}}),
        now_);
    const std::string welcome(service_.output(id));
    FUZZ_CHECK(!welcome.empty());
    peer.role = hello.role;
    peer.proven = !service_.should_close(id);
    if (peer.proven) take_all(id);
    return id;
  }

  // Returns a message of numbers and texts that reach much of the server.
  std::string message(Script& script) {
    // The last two are statuses of ranks that wait for each other.
    static const std::string kTexts[] = {
        "", "a", "b", "launcher/a", "7", "9223372036854775807", stuck_status(1), stuck_status(2)};
    static constexpr int64_t kNumbers[] = {0, 1, -1, 2, 100, 100'000, INT64_MAX, INT64_MIN};
    Message m{static_cast<MessageType>(script.byte() % 28), {}, {}};
    const uint8_t counts = script.byte();
    for (int i = 0; i < counts % 4; ++i) m.numbers.push_back(kNumbers[script.byte() % std::size(kNumbers)]);
    for (int i = 0; i < (counts >> 2) % 4; ++i) m.texts.push_back(kTexts[script.byte() % std::size(kTexts)]);
    return encode(m);
  }

  // The status of a rank that waits for ranks 0 and 1 in a call of this group.
  static std::string stuck_status(uint32_t group) {
    const CallId call{{CallSeries::Kind::kCollective, group, 0}, 1};
    return encode_status({.activity = Activity::kInCall,
                          .call = "barrier #1",
                          .waits = {{.call = call, .ranks = RankSet({0, 1})}},
                          .stuck = 1,
                          .arrived = {{call.series, 1}}});
  }

  void send(Id id, std::string_view bytes) {
    // The real server reads nothing from clients that do not read their answers.
    if (id == 0 || bytes.empty() || !service_.can_receive(id)) return;
    service_.receive(id, bytes, now_);
  }

  // The client reads `count` bytes of its answers.
  void take(Id id, size_t count) {
    if (id == 0) return;
    Peer& peer = peers_.at(id);
    const std::string bytes(service_.output(id).substr(0, count));
    service_.mark_sent(id, bytes.size(), now_);
    peer.in.append(bytes);
    for (;;) {
      std::string_view body;
      const FrameReader::State state = peer.in.next(kMaxFrame, &body);
      FUZZ_CHECK(state != FrameReader::State::kTooLong);
      if (state == FrameReader::State::kPartial) break;
      check_parse(body);
      const std::optional<Message> message = parse(body);
      FUZZ_CHECK(message);
      check_direction(peer, *message);
    }
  }
  void take_all(Id id) { take(id, service_.output(id).size()); }

  void check_direction(const Peer& peer, const Message& message) {
    switch (message.type) {
      case MessageType::kChallenge:
      case MessageType::kRefused:
        break;
      case MessageType::kWelcome:
        FUZZ_CHECK(peer.proven);
        break;
      case MessageType::kAnswer:
      case MessageType::kTimedOut:
      case MessageType::kInvalid:
        FUZZ_CHECK(peer.proven && peer.role == Role::kClient);
        break;
      case MessageType::kFailed:
        FUZZ_CHECK(peer.proven && peer.role != Role::kClient && parse_failure(message));
        break;
      case MessageType::kLeft:
      case MessageType::kStatuses:
      case MessageType::kQueryHeartbeat:
        FUZZ_CHECK(peer.proven && peer.role == Role::kMember);
        break;
      default:
        FUZZ_CHECK(!"a client's message");
    }
  }

  // A body that parses is the only encoding of its message.
  static void check_parse(std::string_view body) {
    if (const std::optional<Message> m = parse(body)) FUZZ_CHECK(encode(*m).substr(4) == body);
    (void)parse_hello(body);
    if (const std::optional<RankStatus> status = decode_status(body, 3))
      for (const RankWait& wait : status->waits)
        for (const int rank : wait.ranks.ranks()) FUZZ_CHECK(rank >= 0 && rank < 3);
  }

  void check_failure() {
    if (!service_.failure()) return;
    if (!failure_) failure_ = service_.failure();
    FUZZ_CHECK(failure_->text == service_.failure()->text);
  }

  void disconnect(Id id) {
    service_.disconnect(id, "died: its connection closed", now_);
    peers_.erase(id);
  }

  std::string ask(Id id, const Message& question) {
    service_.receive(id, encode(question), now_);
    std::string answer(service_.output(id));
    service_.mark_sent(id, answer.size(), now_);
    return answer;
  }

  void finish() {
    while (!peers_.empty()) disconnect(peers_.begin()->first);
    const Id id = enter({.role = Role::kClient, .attempt = attempt_});
    FUZZ_CHECK(peers_.at(id).proven);
    FUZZ_CHECK(ask(id, {MessageType::kSet, {}, {"last", "word"}}) == encode(StoreAnswer()));
    FUZZ_CHECK(ask(id, {MessageType::kPop, {0}, {"last"}}) == encode({MessageType::kAnswer, {0}, {"word"}}));
    FUZZ_CHECK(ask(id, {MessageType::kGet, {5}, {"last"}}).empty());
    now_ += Milliseconds(5);
    service_.expire(now_);
    FUZZ_CHECK(service_.output(id) == encode({MessageType::kTimedOut, {}, {"last"}}));
    take_all(id);
    disconnect(id);
    // Only deaths still wait, for the launcher's explanation.
    now_ += kLauncherGracePeriod;
    service_.expire(now_);
    FUZZ_CHECK(!service_.next_deadline() && service_.connections() == 0);
  }

  TimePoint now_;
  int attempt_ = 0;
  StoreService service_{{.job_id = "job",
                         .token = "token",
                         .launcher_token = "token",
                         .max_connections = 30,
                         .max_greeting = 8,
                         .nonce = [] { return std::string(kNonceBytes, 's'); }}};
  std::map<Id, Peer> peers_;
  std::optional<Failure> failure_;
};

}  // namespace
}  // namespace gradus::dist::internal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus::dist::internal;
  Driver().run(Script({reinterpret_cast<const char*>(data), size}));
  return 0;
}
