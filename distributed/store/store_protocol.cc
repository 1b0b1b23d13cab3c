// Encodes and parses the messages of the store's protocol (frame layout and handshake: store_protocol.h).
// Parsers treat bytes as hostile: they check every count, length and range before use and return nullopt
// instead of throwing. A parsed Message has views into the parsed bytes, which must outlive it.
#include "gradus/distributed/store/store_protocol.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/wire.h"

namespace gradus::dist::internal {
namespace {

// Limits a client's timeout, so that deadlines do not overflow.
constexpr Milliseconds kMaxWait = std::chrono::hours(24 * 365);

// How many numbers and texts a message has, by type; kAnyCount: any. Entry 0 is MessageType::kNone.
struct Form {
  size_t numbers, texts;
};
#define GRADUS_FORM(type, numbers, texts) {numbers, texts},
constexpr Form kForms[] = {{0, 0}, GRADUS_STORE_MESSAGES(GRADUS_FORM)};
#undef GRADUS_FORM

bool fits(size_t count, size_t expected) { return expected == kAnyCount || count == expected; }

}  // namespace

std::string encode(const Message& message) {
  WireWriter wire;
  wire.put(message.type, message.numbers, message.texts);
  const std::string body = wire.release();
  return to_wire(uint32_t(body.size())) + body;
}

std::optional<Message> parse(std::string_view body) {
  try {
    WireReader wire(body);
    Message message;
    wire.get(message.type);
    if (message.type == MessageType::kNone || size_t(message.type) >= std::size(kForms)) return {};
    const Form& form = kForms[size_t(message.type)];
    wire.get_at_most(3 * kMaxListed, message.numbers);  // statuses have three numbers for each rank
    wire.get_at_most(kMaxListed, message.texts);
    if (wire.remaining() != 0 || !fits(message.numbers.size(), form.numbers) ||
        !fits(message.texts.size(), form.texts))
      return {};
    return message;
  } catch (const StoreError&) {
    return {};
  }
}

// The first text is the key, or all texts are keys (kWait, kCheck); values follow.
Message to_message(const StoreRequest& request) {
  Message message{MessageType(uint8_t(MessageType::kSet) + uint8_t(request.op)), {}, request.keys};
  message.texts.insert(message.texts.end(), request.values.begin(), request.values.end());
  if (request.op == StoreRequest::Op::kAdd) message.numbers = {request.amount};
  if (request.waits()) message.numbers = {request.timeout.count()};
  return message;
}

std::optional<StoreRequest> parse_request(const Message& message) {
  if (message.type < MessageType::kSet || message.type > MessageType::kNumKeys) return {};
  StoreRequest request{.op = StoreRequest::Op(uint8_t(message.type) - uint8_t(MessageType::kSet))};
  const bool many_keys = message.type == MessageType::kWait || message.type == MessageType::kCheck;
  for (const std::string_view text : message.texts)
    (many_keys || request.keys.empty() ? request.keys : request.values).push_back(text);
  if (request.op == StoreRequest::Op::kAdd) request.amount = message.numbers[0];
  if (request.waits())
    request.timeout = std::clamp(Milliseconds(message.numbers[0]), Milliseconds(0), kMaxWait);
  return request;
}

std::string encode(const StoreAnswer& answer) {
  return encode({MessageType::kAnswer, {answer.number}, {answer.value}});
}

// `limit`: the most bytes of a frame without its length.
FrameReader::State FrameReader::next(size_t limit, std::string_view* body) {
  // Drops the used bytes only now, so that the last frame stayed valid until this call.
  if (consumed_ == bytes_.size()) {
    bytes_.clear();
    if (bytes_.capacity() > kMaxNotice) bytes_.shrink_to_fit();
    consumed_ = 0;
  } else if (consumed_ > bytes_.size() / 2) {
    bytes_.erase(0, consumed_);
    consumed_ = 0;
  }
  uint32_t length;
  if (pending() < sizeof length) return State::kPartial;
  WireReader left(std::string_view(bytes_).substr(consumed_));
  left.get(length);
  if (length > limit) return State::kTooLong;
  if (length > left.remaining()) return State::kPartial;
  *body = left.read_bytes(length);
  consumed_ += sizeof length + length;
  return State::kFrame;
}

std::string encode(const Hello& hello) {
  return encode(
      {MessageType::kHello,
       {hello.version, static_cast<int64_t>(hello.role), hello.attempt, hello.rank, hello.world_size},
       {kMagic, hello.nonce, hello.job_id, hello.name}});
}

std::optional<Hello> parse_hello(std::string_view body) {
  const std::optional<Message> message = parse(body);
  if (!message || message->type != MessageType::kHello || message->texts[0] != kMagic) return {};
  // Numbers: version, role, attempt, rank, world size. Texts: magic, nonce, job id, name.
  const auto& n = message->numbers;
  if (n[0] != kProtocolVersion) return Hello{.version = n[0]};
  const bool member = n[1] == static_cast<int64_t>(Role::kMember);
  if (n[1] < 0 || n[1] > static_cast<int64_t>(Role::kLauncher) || n[2] < kAnyAttempt ||
      n[2] > std::numeric_limits<int>::max() || message->texts[1].size() != kNonceBytes ||
      message->texts[3].size() > kMaxName)
    return {};
  if (member && (n[4] < 1 || n[4] > kMaxWorldSize || n[3] < 0 || n[3] >= n[4])) return {};
  return Hello{.role = static_cast<Role>(n[1]),
               .attempt = static_cast<int>(n[2]),
               .rank = member ? static_cast<int>(n[3]) : -1,
               .world_size = member ? static_cast<int>(n[4]) : 0,
               .job_id = std::string(message->texts[2]),
               .nonce = std::string(message->texts[1]),
               .name = std::string(message->texts[3])};
}

std::string encode(MessageType type, int attempt, const Failure& failure) {
  return encode({type,
                 {attempt, static_cast<int64_t>(failure.kind), failure.rank},
                 {std::string_view(failure.text).substr(0, kMaxFailureText)}});
}

std::optional<AttemptFailure> parse_failure(const Message& message) {
  const auto& n = message.numbers;  // attempt, kind, rank (-1: none)
  if (n[0] < 0 || n[0] > std::numeric_limits<int>::max() || n[1] < 0 ||
      n[1] > static_cast<int64_t>(Failure::Kind::kDeadlock) || n[2] < -1 || n[2] >= kMaxWorldSize ||
      message.texts[0].size() > kMaxFailureText)
    return {};
  return AttemptFailure{static_cast<int>(n[0]), Failure{.kind = static_cast<Failure::Kind>(n[1]),
                                                        .rank = static_cast<int>(n[2]),
                                                        .text = std::string(message.texts[0])}};
}

std::string make_proof(std::string_view token, std::string_view side, std::string_view hello,
                       std::string_view challenge) {
  // Signs a message of three texts, so that their lengths are signed too.
  const std::string data = encode({MessageType::kCompareSet, {}, {side, hello, challenge}});
  unsigned char mac[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), token.empty() ? "" : token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(data.data()), data.size(), mac, &size) == nullptr)
    throw InternalError("HMAC-SHA256 is not available");
  return std::string(reinterpret_cast<const char*>(mac), size);
}

std::string rank_token(std::string_view launcher_token) {
  return to_hex(make_proof(launcher_token, "ranks", "", ""));
}

bool equal_proofs(std::string_view a, std::string_view b) {
  return a.size() == kProofBytes && b.size() == kProofBytes &&
         CRYPTO_memcmp(a.data(), b.data(), kProofBytes) == 0;
}

std::string random_nonce() { return random_hex("store", kNonceBytes); }

}  // namespace gradus::dist::internal
