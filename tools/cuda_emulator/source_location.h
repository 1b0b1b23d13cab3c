// A source location for reports: file and line from std::source_location for barriers, warp-wide operations
// and vectors; the address of the code for other accesses.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

namespace gradus::cuda::emulated {

struct SourceLocation {
  const char* file = nullptr;
  uint32_t line = 0;
  const void* code = nullptr;  // the return address of a hook, where there is no file

  static SourceLocation of(const std::source_location& at) { return {at.file_name(), at.line(), nullptr}; }
  static SourceLocation of(const void* code) { return {nullptr, 0, code}; }

  friend bool operator==(const SourceLocation& a, const SourceLocation& b) {
    return a.code == b.code && a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
  }
};

// Returns "kernels/softmax.cu.cc:31". An address is looked up in the debug information of its file, by
// binutils' addr2line; without that it is printed as it is.
std::string describe(const SourceLocation& location);
// Returns the name of the function at an address, with its template arguments.
std::string name_of_function(const void* code);

}  // namespace gradus::cuda::emulated
