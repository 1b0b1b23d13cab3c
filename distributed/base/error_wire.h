// An error as bytes, so that other ranks throw it too.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace gradus::dist::internal {

std::string error_to_wire(const std::exception_ptr& error);
// Throws the error that error_to_wire was given on `rank`. The errors of tensor/base/error.h keep their type
// and text. Any other one becomes a PeerError of `op`: "rank 1 failed to load: ..."; `failed` is the verb.
[[noreturn]] void throw_from_wire(std::string_view bytes, std::string_view op, int rank,
                                  std::string_view failed);

}  // namespace gradus::dist::internal
