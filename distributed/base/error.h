// The exceptions of distributed/, and Failure: the reason why a job ended, from which all ranks throw.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {

// Base of the errors between ranks. Wrong arguments or states are a ValueError, ShapeError, StateError etc.
class DistributedError : public Error {
 public:
  template <class... Parts>
  explicit DistributedError(std::string_view op, int rank, const Parts&... parts)
      : Error(op, parts...), rank_(rank) {}
  // The rank at fault (rank in the job); -1: unknown, or no rank is at fault.
  int rank() const { return rank_; }

 private:
  int rank_;
};

// A rank died, failed or left.
struct PeerError : DistributedError {
  using DistributedError::DistributedError;
};
// A rank or key did not arrive in time.
struct TimeoutError : DistributedError {
  using DistributedError::DistributedError;
};
// Ranks called different collectives, passed arguments that do not match, or wait for each other (deadlock).
struct MismatchError : DistributedError {
  using DistributedError::DistributedError;
};
// The store is unreachable, or refused the connection (a wrong token, for example).
class ConnectionError : public DistributedError {
 public:
  enum class Reason : uint8_t {
    kOther,
    kUnreachable,    // no server, or another program, answers at the address
    kRefused,        // the store's server refused this client
    kTokenMismatch,  // client and server have different tokens (the job's secret)
    kPortTaken,      // another process listens at the port
  };
  using DistributedError::DistributedError;
  template <class... Parts>
  ConnectionError(Reason reason, std::string_view op, int rank, const Parts&... parts)
      : DistributedError(op, rank, parts...), reason_(reason) {}
  Reason reason() const { return reason_; }

 private:
  Reason reason_ = Reason::kOther;
};
// Data in the store is malformed or too large.
struct StoreError : DistributedError {
  using DistributedError::DistributedError;
};

// Why a job cannot go on. Failures travel between ranks; the first one reported counts for all ranks.
struct Failure {
  enum class Kind : uint8_t {
    kDied,      // ended by a signal, or its connection broke
    kFailed,    // ended with an exception or a non-zero exit code
    kLeft,      // left the job in order while others waited for it
    kTimeout,   // did not arrive in time
    kMismatch,  // made a call that does not match the other ranks' calls
    kDeadlock,  // is one of several ranks that wait for each other
  };
  Kind kind = Kind::kDied;
  int rank = -1;     // the rank at fault; -1: unknown
  std::string text;  // a sentence that names the rank: "rank 3 was killed by signal 9 (SIGKILL)"
};

// Throws the error for `failure` as "[op] text": kTimeout as TimeoutError, kMismatch and kDeadlock as
// MismatchError, the other kinds as PeerError.
[[noreturn]] void throw_failure(std::string_view op, const Failure& failure);

namespace internal {
// Returns error.what() without "[op] " at its begin, for Failure::text.
std::string text_of(const Error& error);
}  // namespace internal

}  // namespace gradus::dist
