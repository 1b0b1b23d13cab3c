// The native backtrace of a rank that ends by SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT, in its error file
// (rank_error.h). The launcher looks up the names of functions (launch/internal/symbols.h).
#pragma once

#include <string>

namespace gradus::dist::internal {

// Installs handlers that write the error file, and then let the signal end the process. Does nothing unless a launcher
// of Gradus started this process (GRADUS_ERROR_FILE), for signals that have a handler already, under a sanitizer, and
// in later calls. A handler that the program installs later replaces it.
void install_crash_handler();

// Returns the frames of the calling thread, innermost first, one line each: "#0 /path/of/program+0x1a2b", where the
// number is an address of the file's symbols. "" unless install_crash_handler() has handlers.
std::string native_backtrace();

}  // namespace gradus::dist::internal
