// What a store's server and its clients say to each other, as bytes. Pure: no sockets.
//
// A frame is a length (4 bytes, little endian) and that many bytes: one message. A message is a type,
// numbers and texts:
//   u8 type | u32 n | n times i64 | u32 m | m times (u32 length, bytes)
// Each type has its own count of numbers and texts (store_protocol.cc); what does not fit is no message.
//
//   client                                  server
//   kHello: who it is, its nonce     ->
//                                    <-     kChallenge: the server's nonce
//   kProof: HMAC over both           ->
//                                    <-     kWelcome: HMAC over both, the server's; or kRefused and why
// Then a client asks and gets one answer each time. Members and launchers tell, and are told, at any time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/base/store.h"

namespace gradus::dist::internal {

enum class MessageType : uint8_t {
  kHello = 1,    // version, role, attempt, rank, world size; magic, nonce, job id, name
  kChallenge,    // ; nonce
  kProof,        // ; HMAC
  kWelcome,      // ; HMAC
  kRefused,      // Refusal; why
  kSet,          // ; key, value
  kGet,          // milliseconds; key
  kPop,          // milliseconds; key
  kAdd,          // amount; key
  kCompareSet,   // ; key, expected, desired
  kAppend,       // ; key, value
  kWait,         // milliseconds; keys
  kCheck,        // ; keys
  kDelete,       // ; key
  kNumKeys,      // ;
  kAnswer,       // number; values
  kTimedOut,     // ; missing keys
  kInvalid,      // ; what is wrong
  kHeartbeat,    // the last kAskStill that it answers; what the rank does
  kLeave,        // ;
  kReport,       // attempt, kind, rank; text
  kAskStatuses,  // ;
  kFailed,       // attempt, kind, rank; text
  kLeft,         // rank
  kStatuses,     // rank, left, silent milliseconds of each; doing of each
  kEnded,        // attempt, rank
  kAskStill,     // number: wants a heartbeat now
};

enum class Role : uint8_t { kClient, kMember, kLauncher };
enum class Refusal : uint8_t { kVersion, kToken, kJob, kOver, kNotYet, kRank, kFull };

inline constexpr std::string_view kMagic = "gradus store";
inline constexpr int64_t kProtocolVersion = 3;
inline constexpr int kAnyAttempt = -1;
inline constexpr size_t kNonceBytes = 32, kProofBytes = 32;
inline constexpr int kMaxWorldSize = 1 << 16;
inline constexpr size_t kMaxListed = 1 << 16;  // keys in one request
// Longest frames: before a client has proven who it is, of members, of clients (compare_set: a key
// and two values).
inline constexpr size_t kMaxGreeting = 4 << 10;
inline constexpr size_t kMaxNotice = 64 << 10;
inline constexpr size_t kMaxFrame = 2 * StoreLimits::kValueBytes + (64 << 10);
inline constexpr size_t kMaxFailureText = 32 << 10, kMaxDoingText = 4096, kMaxName = 256;

struct Message {
  MessageType type;
  std::vector<int64_t> numbers;
  std::vector<std::string_view> texts;  // in the frame that it was parsed from
};

// The frame of a message.
std::string encode(const Message& message);
// Reads what follows a frame's length. Nothing when it is no message: unknown type, wrong counts, lengths
// that do not add up.
std::optional<Message> parse(std::string_view body);

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  enum class State { kFrame, kPartial, kTooLong };

  void append(std::string_view bytes) { bytes_.append(bytes); }
  // kFrame: `body` is the next frame's, valid until the next call of a function.
  State next(size_t limit, std::string_view* body);
  // Bytes that no frame was made of yet.
  size_t pending() const { return bytes_.size() - used_; }

 private:
  std::string bytes_;
  size_t used_ = 0;
};

struct Hello {
  Role role = Role::kClient;
  int attempt = 0;  // kAnyAttempt: outlives attempts
  int rank = -1, world_size = 0;
  std::string job_id, nonce;
  std::string name;  // of a launcher: "node 1"
};
std::string encode(const Hello& hello);
// Returns kVersion for another protocol's, nothing for what is no greeting at all.
struct HelloResult {
  std::optional<Hello> hello;
  bool other_version = false;
};
HelloResult parse_hello(std::string_view body);

std::string encode(MessageType type, int attempt, const Failure& failure);
struct AttemptFailure {
  int attempt;
  Failure failure;
};
std::optional<AttemptFailure> parse_failure(const Message& message);

// HMAC-SHA256, by the job's token, of what both sides said. `side` keeps either from echoing the other's.
std::string prove(std::string_view token, std::string_view side, std::string_view hello,
                  std::string_view challenge);
// Compares in a time that does not depend on where they differ.
bool equal_proofs(std::string_view a, std::string_view b);
std::string random_nonce();

}  // namespace gradus::dist::internal
