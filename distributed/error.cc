#include "gradus/distributed/error.h"

namespace gradus::dist {

void throw_failure(std::string_view op, const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::kTimeout:
      throw TimeoutError(op, failure.rank, failure.text);
    case Failure::Kind::kMismatch:
      throw MismatchError(op, failure.rank, failure.text);
    case Failure::Kind::kDied:
    case Failure::Kind::kFailed:
    case Failure::Kind::kLeft:
      break;
  }
  throw PeerError(op, failure.rank, failure.text);
}

}  // namespace gradus::dist
