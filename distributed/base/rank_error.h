// What a rank tells the others, and its launcher, about the exception that ends it. The launcher finds it in
// torchrun's error file, named by GRADUS_ERROR_FILE or TORCHELASTIC_ERROR_FILE.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>

#include "gradus/distributed/base/error.h"

namespace gradus::dist {

// Returns "ShapeError: [matmul] inner sizes differ...": the exception's type and text.
std::string describe_error(const std::exception_ptr& error);
// Returns the text alone.
std::string error_text(const std::exception_ptr& error);
// Returns "rank 1 failed: ShapeError: [matmul] inner sizes differ...", for the others; `how`: "failed".
Failure failure_of(int rank, const std::exception_ptr& error, std::string_view how = "failed");

// Returns the type's name without the namespaces of Gradus and std: "PeerError".
std::string short_name(const std::type_info& type);

// Writes the error file, if the environment names one and nothing is in it yet. Never throws: it runs
// when all is lost.
//   {"message": {"message": "ShapeError: [matmul] ...", "extraInfo": {"text": "[matmul] ...", "timestamp":
//   "1700000000.123"}}}
void write_error_file(const std::exception_ptr& error) noexcept;

// What an error file says. Ranks may be any program: torchrun's own forms are understood too.
struct ErrorFile {
  std::string message;    // "ShapeError: [matmul] ..."
  std::string text;       // without the type, where that is known
  std::string traceback;  // "" when there is none
};
// Nothing for what is empty or malformed.
std::optional<ErrorFile> parse_error_file(std::string_view content);

}  // namespace gradus::dist
