// Typed errors for what goes wrong between ranks. Each names the cause, and the rank at fault
// if there is one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {

// Base of all errors of this folder, except those for a wrong argument or state (ValueError,
// ShapeError, DTypeError, StateError).
class DistributedError : public Error {
 public:
  template <class... Parts>
  explicit DistributedError(std::string_view op, int rank, const Parts&... parts)
      : Error(op, parts...), rank_(rank) {}
  // The rank at fault; -1 when none can be named.
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
// Ranks called different collectives.
struct MismatchError : DistributedError {
  using DistributedError::DistributedError;
};
// The store is unreachable, or refused the connection (a wrong token, for example).
class ConnectionError : public DistributedError {
 public:
  enum class Reason : uint8_t {
    kOther,
    kUnreachable,    // nothing answers there, or another program does
    kRefused,        // the store's server refused this client
    kTokenMismatch,  // client and server have different tokens
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
    kLeft,      // ended in order while others waited for it
    kTimeout,   // did not arrive in time
    kMismatch,  // called something else
    kDeadlock,  // waits for others that wait for it, in different calls
  };
  Kind kind = Kind::kDied;
  int rank = -1;     // at fault; -1: unknown
  std::string text;  // "rank 3 was killed by signal 9 (SIGKILL)": a whole sentence that names the rank
};

// Throws the error for `failure`: TimeoutError, MismatchError or PeerError, with `op` before the text.
[[noreturn]] void throw_failure(std::string_view op, const Failure& failure);

namespace internal {
// Returns the text of `error` without the op before it, for Failure::text.
std::string text_of(const Error& error);
}  // namespace internal

}  // namespace gradus::dist
