// Serializes an exception, so that other ranks can throw it too.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace gradus::dist::internal {

// `error` is not null.
std::string error_to_wire(const std::exception_ptr& error);
// Throws the exception that error_to_wire serialized on rank `rank` of the job. A ShapeError, DTypeError,
// DeviceError, IndexError, ValueError, StateError or FileError, or a class derived from one, keeps that type
// and its text. Any other exception becomes a PeerError: "[op] rank 1 <verb>: <its text>", where `verb` is a
// phrase such as "failed to load". Malformed bytes: StoreError.
[[noreturn]] void throw_from_wire(std::string_view bytes, std::string_view op, int rank,
                                  std::string_view verb);

}  // namespace gradus::dist::internal
