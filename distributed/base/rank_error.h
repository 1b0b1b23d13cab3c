// Texts of the exception that ends a rank, for the other ranks and for its launcher. The launcher reads them
// from an error file in torchrun's format, named by GRADUS_ERROR_FILE or, if that is not set,
// TORCHELASTIC_ERROR_FILE.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>

#include "gradus/distributed/base/error.h"

namespace gradus::dist {

// Returns "ShapeError: [matmul] inner sizes differ...": the exception's type and text; error_text()
// if it is no std::exception.
std::string describe_error(const std::exception_ptr& error);
// Returns what() alone; of a thrown std::string or C string its text; of any other type
// "an exception of type Name". In this file `error` is not null.
std::string error_text(const std::exception_ptr& error);
// Returns the kFailed failure to report to other ranks: "rank 1 <how>: ShapeError: [matmul] ...".
Failure failure_of(int rank, const std::exception_ptr& error, std::string_view how = "failed");

// Returns the type's name without the namespaces of Gradus and std: "PeerError".
std::string short_name(const std::type_info& type);

// Writes the error file, if the environment names one and the file is empty. Never throws. A traceback is the
// "py_callstack" in "extraInfo".
//   {"message": {"message": "ShapeError: [matmul] ...",
//                "extraInfo": {"text": "[matmul] ...", "timestamp": "1700000000"}}}
// A DistributedError adds "rank", the rank at fault (-1: unknown), to "extraInfo".
void write_error_file(const std::exception_ptr& error, const std::string& traceback = {}) noexcept;

// The content of an error file. A rank may be any program, so torchrun's own forms are understood too: a
// "message" that is a string, and "py_callstack" in "extraInfo", the traceback. Strings are cut to 64 KiB.
struct ErrorFile {
  std::string message;               // "ShapeError: [matmul] ..."
  std::string traceback;             // "" when there is none
  std::optional<int> rank_at_fault;  // of a DistributedError; -1: unknown
};
// Returns nothing for an empty or malformed content.
std::optional<ErrorFile> parse_error_file(std::string_view content);

}  // namespace gradus::dist
