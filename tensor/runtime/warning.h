// Warnings on the standard error output.
#pragma once

#include <string>

namespace gradus {

// Prints "gradus: warning: TEXT", each text once per process. Any thread may call it.
void warn_once(const std::string& text);

}  // namespace gradus
