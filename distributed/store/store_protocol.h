// Wire format of the key-value store (as PyTorch's TCPStore): encodes and decodes the messages between its
// server and clients. No sockets. The server also serves as the job's failure detector: ranks (members) and
// launchers send it heartbeats, and it notifies them of failures. An attempt is one start of the job's ranks;
// restarts count up.
//
// A frame is a length (u32) and that many bytes: one message. A message is a type, numbers and texts, as
// wire.h writes them:
//   u8 type | u64 n | n times i64 | u64 m | m times (u64 length, bytes)
// Each type has a fixed count of numbers and texts. parse() rejects bytes with other counts.
//
//   client                                     server
//   kHello: its identity and nonce      ->
//                                       <-     kChallenge: the server's nonce
//   kProof: HMAC over both messages     ->
//                                       <-     kWelcome: the server's HMAC over both; or kRefused, reason
// After that, a connection of role kClient sends store requests, and receives one answer to each. Members and
// launchers instead send and receive the messages from kHeartbeat on, at any time.
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

inline constexpr size_t kAnyCount = ~size_t(0);  // any count that parse() admits

// One row per type of message: its name, counts of numbers and texts, and their meaning ("numbers; texts").
// clang-format off
#define GRADUS_STORE_MESSAGES(ROW)                                                                                    \
  ROW(kHello, 5, 4)                    /* version, role, attempt, rank, world size; magic, nonce, job id, name */     \
  ROW(kChallenge, 0, 1)                /* ; nonce */                                                                  \
  ROW(kProof, 0, 1)                    /* ; HMAC */                                                                   \
  ROW(kWelcome, 0, 1)                  /* ; HMAC */                                                                   \
  ROW(kRefused, 1, 1)                  /* Refusal; why */                                                             \
  ROW(kSet, 0, 2)                      /* ; key, value. From here to kNumKeys: in the order of StoreRequest::Op */    \
  ROW(kGet, 1, 1)                      /* milliseconds; key */                                                        \
  ROW(kPop, 1, 1)                      /* milliseconds; key */                                                        \
  ROW(kAdd, 1, 1)                      /* amount; key */                                                              \
  ROW(kCompareSet, 0, 3)               /* ; key, expected, desired */                                                 \
  ROW(kAppend, 0, 2)                   /* ; key, value */                                                             \
  ROW(kWait, 1, kAnyCount)             /* milliseconds; keys */                                                       \
  ROW(kCheck, 0, kAnyCount)            /* ; keys */                                                                   \
  ROW(kDelete, 0, 1)                   /* ; key */                                                                    \
  ROW(kNumKeys, 0, 0)                  /* ; */                                                                        \
  ROW(kAnswer, 1, 1)                   /* number; value */                                                            \
  ROW(kTimedOut, 0, kAnyCount)         /* ; missing keys */                                                           \
  ROW(kInvalid, 0, 1)                  /* ; what is wrong */                                                          \
  ROW(kHeartbeat, 1, 1)                /* the last kQueryHeartbeat that it answers; the status (status_wire.h) */     \
  ROW(kLeave, 0, 0)                    /* ; */                                                                        \
  ROW(kReport, 3, 1)                   /* attempt, kind, rank; text */                                                \
  ROW(kQueryStatuses, 0, 0)            /* ; */                                                                        \
  ROW(kFailed, 3, 1)                   /* attempt, kind, rank; text */                                                \
  ROW(kLeft, 1, 0)                     /* rank */                                                                     \
  ROW(kStatuses, kAnyCount, kAnyCount) /* rank, left, silent milliseconds of each; status of each */                  \
  ROW(kRankExited, 2, 0)               /* attempt, rank */                                                            \
  ROW(kQueryHeartbeat, 1, 0)           /* number: requests a heartbeat now */
// clang-format on

#define GRADUS_ENUMERATOR(type, ...) type,
// kNone is no valid type: types count from 1.
enum class MessageType : uint8_t { kNone, GRADUS_STORE_MESSAGES(GRADUS_ENUMERATOR) };
#undef GRADUS_ENUMERATOR

// kClient: a connection for store requests. kMember: a rank's connection for heartbeats and failures.
// kLauncher: that of the process that starts the ranks of a node.
enum class Role : uint8_t { kClient, kMember, kLauncher };
// Why the server refuses a greeting: other protocol version; wrong token; other job; the client's attempt is
// over, or has not begun yet; the rank is invalid or taken; too many connections.
enum class Refusal : uint8_t { kVersion, kToken, kJob, kAttemptOver, kAttemptNotBegun, kRank, kFull };

inline constexpr std::string_view kMagic = "gradus store";
inline constexpr int64_t kProtocolVersion = 5;
inline constexpr int kAnyAttempt = -1;  // Hello::attempt of clients that outlive attempts, such as launchers
inline constexpr size_t kNonceBytes = 32, kProofBytes = 32;
inline constexpr int kMaxWorldSize = 1 << 16;
inline constexpr size_t kMaxListed = 1 << 16;  // texts of one message: keys of a request, statuses of ranks
// The longest frames: before a client has proven itself (kMaxGreeting), from members and launchers
// (kMaxNotice), and from clients (kMaxFrame: compare_set has a key and two values).
inline constexpr size_t kMaxGreeting = 4 << 10;
inline constexpr size_t kMaxNotice = 64 << 10;
inline constexpr size_t kMaxFrame = 2 * StoreLimits::kValueBytes + (64 << 10);
inline constexpr size_t kMaxFailureText = 32 << 10, kMaxStatusBytes = 8 << 10, kMaxName = 256;

struct Message {
  MessageType type;
  std::vector<int64_t> numbers;
  std::vector<std::string_view> texts;  // in the frame that it was parsed from
};

// Returns the frame of a message.
std::string encode(const Message& message);
// Parses a frame without its length. Returns nullopt for an unknown type, wrong counts or wrong lengths.
std::optional<Message> parse(std::string_view body);

// Cuts a stream of bytes into frames.
class FrameReader {
 public:
  enum class State { kFrame, kPartial, kTooLong };

  void append(std::string_view bytes) { bytes_.append(bytes); }
  // Removes the next frame. kFrame: `body` is the frame without its length, valid until the next call.
  State next(size_t limit, std::string_view* body);
  // Returns the number of bytes that belong to no complete frame yet.
  size_t pending() const { return bytes_.size() - consumed_; }

 private:
  std::string bytes_;
  size_t consumed_ = 0;
};

// Requests of Store as messages of the types kSet to kNumKeys, and their answers. parse_request returns
// nothing for another type.
Message to_message(const StoreRequest& request);
std::optional<StoreRequest> parse_request(const Message& message);
std::string encode(const StoreAnswer& answer);

struct Hello {
  int64_t version = kProtocolVersion;
  Role role = Role::kClient;
  int attempt = 0;  // kAnyAttempt: the client outlives attempts
  int rank = -1, world_size = 0;
  std::string job_id, nonce;
  std::string name;  // of a launcher: "node 1"
};
std::string encode(const Hello& hello);
// Returns nothing for bytes that are no greeting. Of the greeting of another protocol version, only the
// version is set.
std::optional<Hello> parse_hello(std::string_view body);

// The messages kReport and kFailed (`type` is one of them). parse_failure: nullopt if out of range.
std::string encode(MessageType type, int attempt, const Failure& failure);
struct AttemptFailure {
  int attempt;
  Failure failure;
};
std::optional<AttemptFailure> parse_failure(const Message& message);

// Returns the HMAC-SHA256 of `side` ("client" or "server") and the frames of kHello and kChallenge, without
// their lengths, keyed by the job's token. `side` prevents reflection of the other side's proof.
std::string make_proof(std::string_view token, std::string_view side, std::string_view hello,
                       std::string_view challenge);
// Derives the ranks' token (64 hexadecimal digits) from that of launchers on several nodes (one-way).
std::string rank_token(std::string_view launcher_token);
// Compares two proofs in constant time, against timing attacks.
bool equal_proofs(std::string_view a, std::string_view b);
std::string random_nonce();  // kNonceBytes hexadecimal digits; StateError if the system has no random numbers

}  // namespace gradus::dist::internal
