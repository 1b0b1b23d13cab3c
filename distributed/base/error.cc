// Maps Failure::Kind to the exception that ranks throw, and removes the "[op] " that begins an Error's
// what(), where op is the function that failed.
#include "gradus/distributed/base/error.h"

namespace gradus::dist {

void throw_failure(std::string_view op, const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::kTimeout:
      throw TimeoutError(op, failure.rank, failure.text);
    case Failure::Kind::kMismatch:
    case Failure::Kind::kDeadlock:
      throw MismatchError(op, failure.rank, failure.text);
    case Failure::Kind::kDied:
    case Failure::Kind::kFailed:
    case Failure::Kind::kLeft:
      break;
  }
  throw PeerError(op, failure.rank, failure.text);
}

namespace internal {

std::string text_of(const Error& error) {
  const std::string_view text = error.what(), op = error.op();
  const size_t before = op.size() + 3;  // the size of "[op] "; missing if the error has context before it
  return std::string(text.starts_with('[') && text.substr(1).starts_with(op) && text.size() >= before
                         ? text.substr(before)
                         : text);
}

}  // namespace internal
}  // namespace gradus::dist
