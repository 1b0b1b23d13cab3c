// Names of functions in backtraces, from the symbol tables of ELF files.
#pragma once

#include <string>

namespace gradus::dist::internal {

// Replaces each line "#0 /path/of/file+0x1a2b" (base/crash_handler.h) by "#0 ns::function(int)+0x12 (file)" if the file
// has a symbol there. Other lines stay. The text, which a rank wrote, and the files may be malformed.
std::string with_symbols(const std::string& backtrace);

}  // namespace gradus::dist::internal
