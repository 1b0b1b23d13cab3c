// What goes wrong between ranks, as typed errors. Each names the rank at fault, where one is, and the cause.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {

// Base of all errors of this folder that are not a plain wrong argument (ValueError,
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

struct PeerError : DistributedError {
  using DistributedError::DistributedError;
};  // a rank died, failed or left
struct TimeoutError : DistributedError {
  using DistributedError::DistributedError;
};  // a rank or key did not come in time
struct MismatchError : DistributedError {
  using DistributedError::DistributedError;
};  // ranks called different collectives
struct ConnectionError : DistributedError {
  using DistributedError::DistributedError;
};  // unreachable, refused, wrong token
struct StoreError : DistributedError {
  using DistributedError::DistributedError;
};  // malformed or too large

// Why a job cannot go on, as it travels between ranks. The first one reported counts, for all ranks.
struct Failure {
  enum class Kind : uint8_t {
    kDied,      // ended by a signal, or its connection broke
    kFailed,    // ended with an exception or a non-zero exit code
    kLeft,      // ended in order while others waited for it
    kTimeout,   // did not come in time
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
// The text of `error` without the op before it: to become a Failure's.
std::string text_of(const Error& error);
}  // namespace internal

}  // namespace gradus::dist
