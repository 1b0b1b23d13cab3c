// Warnings on the standard error output.
#pragma once

#include <string>

namespace gradus {

// Prints "gradus: warning: TEXT" and a line break, each text once per process. Thread-safe.
void warn_once(const std::string& text);

}  // namespace gradus
