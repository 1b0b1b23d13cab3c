#include "gradus/distributed/store/store_protocol.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <limits>

namespace gradus::dist::internal {
namespace {

constexpr size_t kAny = std::numeric_limits<size_t>::max();  // up to kMaxListed

// How many numbers and texts a type of message has.
struct Form {
  size_t numbers, texts;
};
std::optional<Form> form_of(uint8_t type) {
  switch (static_cast<MessageType>(type)) {
    case MessageType::kHello:
      return Form{5, 4};
    case MessageType::kChallenge:
      return Form{0, 1};
    case MessageType::kProof:
      return Form{0, 1};
    case MessageType::kWelcome:
      return Form{0, 1};
    case MessageType::kRefused:
      return Form{1, 1};
    case MessageType::kSet:
      return Form{0, 2};
    case MessageType::kGet:
      return Form{1, 1};
    case MessageType::kPop:
      return Form{1, 1};
    case MessageType::kAdd:
      return Form{1, 1};
    case MessageType::kCompareSet:
      return Form{0, 3};
    case MessageType::kAppend:
      return Form{0, 2};
    case MessageType::kWait:
      return Form{1, kAny};
    case MessageType::kCheck:
      return Form{0, kAny};
    case MessageType::kDelete:
      return Form{0, 1};
    case MessageType::kNumKeys:
      return Form{0, 0};
    case MessageType::kAnswer:
      return Form{1, kAny};
    case MessageType::kTimedOut:
      return Form{0, kAny};
    case MessageType::kInvalid:
      return Form{0, 1};
    case MessageType::kHeartbeat:
      return Form{1, 1};
    case MessageType::kLeave:
      return Form{0, 0};
    case MessageType::kReport:
      return Form{3, 1};
    case MessageType::kQueryStatuses:
      return Form{0, 0};
    case MessageType::kFailed:
      return Form{3, 1};
    case MessageType::kLeft:
      return Form{1, 0};
    case MessageType::kStatuses:
      return Form{kAny, kAny};
    case MessageType::kEnded:
      return Form{2, 0};
    case MessageType::kQueryStill:
      return Form{1, 0};
  }
  return {};
}

template <class T> void put(std::string* out, T value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

// Reads a value from the front of `left`. Returns false if `left` is too short.
template <class T> bool take(std::string_view* left, T* value) {
  if (left->size() < sizeof *value) return false;
  uint64_t bits = 0;
  for (size_t i = 0; i < sizeof *value; ++i) bits |= uint64_t(static_cast<uint8_t>((*left)[i])) << (8 * i);
  *value = static_cast<T>(bits);
  left->remove_prefix(sizeof *value);
  return true;
}

// Reads a count of things that take at least `size` bytes each.
bool take_count(std::string_view* left, size_t size, size_t expected, uint32_t* count) {
  if (!take(left, count) || *count > left->size() / size) return false;
  // Statuses have three numbers for each rank.
  return expected == kAny ? *count <= 3 * kMaxListed : *count == expected;
}

}  // namespace

std::string encode(const Message& message) {
  size_t size = 1 + 4 + 8 * message.numbers.size() + 4;
  for (const auto text : message.texts) size += 4 + text.size();
  std::string frame;
  frame.reserve(4 + size);
  put(&frame, static_cast<uint32_t>(size));
  put(&frame, static_cast<uint8_t>(message.type));
  put(&frame, static_cast<uint32_t>(message.numbers.size()));
  for (const int64_t number : message.numbers) put(&frame, number);
  put(&frame, static_cast<uint32_t>(message.texts.size()));
  for (const auto text : message.texts) {
    put(&frame, static_cast<uint32_t>(text.size()));
    frame.append(text);
  }
  return frame;
}

std::optional<Message> parse(std::string_view body) {
  uint8_t type;
  if (!take(&body, &type)) return {};
  const std::optional<Form> form = form_of(type);
  if (!form) return {};

  Message message{static_cast<MessageType>(type), {}, {}};
  uint32_t count;
  if (!take_count(&body, sizeof(int64_t), form->numbers, &count)) return {};
  message.numbers.resize(count);
  for (int64_t& number : message.numbers)
    if (!take(&body, &number)) return {};

  if (!take_count(&body, sizeof(uint32_t), form->texts, &count) || count > kMaxListed) return {};
  message.texts.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t length;
    if (!take(&body, &length) || length > body.size()) return {};
    message.texts.push_back(body.substr(0, length));
    body.remove_prefix(length);
  }
  if (!body.empty()) return {};
  return message;
}

FrameReader::State FrameReader::next(size_t limit, std::string_view* body) {
  // Drops the used bytes only now, so that the last frame stayed valid until this call.
  if (used_ == bytes_.size()) {
    bytes_.clear();
    if (bytes_.capacity() > kMaxNotice) bytes_.shrink_to_fit();
    used_ = 0;
  } else if (used_ > bytes_.size() / 2) {
    bytes_.erase(0, used_);
    used_ = 0;
  }
  std::string_view left = std::string_view(bytes_).substr(used_);
  uint32_t length;
  if (!take(&left, &length)) return State::kPartial;
  if (length > limit) return State::kTooLong;
  if (length > left.size()) return State::kPartial;
  *body = left.substr(0, length);
  used_ += sizeof length + length;
  return State::kFrame;
}

std::string encode(const Hello& hello) {
  return encode(
      {MessageType::kHello,
       {kProtocolVersion, static_cast<int64_t>(hello.role), hello.attempt, hello.rank, hello.world_size},
       {kMagic, hello.nonce, hello.job_id, hello.name}});
}

HelloResult parse_hello(std::string_view body) {
  const std::optional<Message> message = parse(body);
  if (!message || message->type != MessageType::kHello || message->texts[0] != kMagic) return {};
  const auto& n = message->numbers;
  if (n[0] != kProtocolVersion) return {.other_version = true};
  const bool member = n[1] == static_cast<int64_t>(Role::kMember);
  if (n[1] < 0 || n[1] > static_cast<int64_t>(Role::kLauncher) || n[2] < kAnyAttempt ||
      n[2] > std::numeric_limits<int>::max() || message->texts[1].size() != kNonceBytes ||
      message->texts[3].size() > kMaxName)
    return {};
  if (member && (n[4] < 1 || n[4] > kMaxWorldSize || n[3] < 0 || n[3] >= n[4])) return {};
  return {.hello = Hello{.role = static_cast<Role>(n[1]),
                         .attempt = static_cast<int>(n[2]),
                         .rank = member ? static_cast<int>(n[3]) : -1,
                         .world_size = member ? static_cast<int>(n[4]) : 0,
                         .job_id = std::string(message->texts[2]),
                         .nonce = std::string(message->texts[1]),
                         .name = std::string(message->texts[3])}};
}

std::string encode(MessageType type, int attempt, const Failure& failure) {
  return encode({type,
                 {attempt, static_cast<int64_t>(failure.kind), failure.rank},
                 {std::string_view(failure.text).substr(0, kMaxFailureText)}});
}

std::optional<AttemptFailure> parse_failure(const Message& message) {
  const auto& n = message.numbers;
  if (n[0] < 0 || n[0] > std::numeric_limits<int>::max() || n[1] < 0 ||
      n[1] > static_cast<int64_t>(Failure::Kind::kDeadlock) || n[2] < -1 || n[2] >= kMaxWorldSize ||
      message.texts[0].size() > kMaxFailureText)
    return {};
  return AttemptFailure{static_cast<int>(n[0]), Failure{.kind = static_cast<Failure::Kind>(n[1]),
                                                        .rank = static_cast<int>(n[2]),
                                                        .text = std::string(message.texts[0])}};
}

std::string prove(std::string_view token, std::string_view side, std::string_view hello,
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
  std::string token;
  for (const char byte : prove(launcher_token, "ranks", "", "")) {
    token += "0123456789abcdef"[static_cast<uint8_t>(byte) >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

bool equal_proofs(std::string_view a, std::string_view b) {
  return a.size() == kProofBytes && b.size() == kProofBytes &&
         CRYPTO_memcmp(a.data(), b.data(), kProofBytes) == 0;
}

std::string random_nonce() {
  std::string nonce(kNonceBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) != 1)
    throw InternalError("no random numbers");
  return nonce;
}

}  // namespace gradus::dist::internal
