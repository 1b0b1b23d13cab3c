// What a summary says about the process.
#pragma once

#include <filesystem>
#include <string>

namespace gradus::training::internal {

// The most memory the process has held so far, in MiB.
double peak_rss_mib();

// Writes `text` to a file.
// Errors: FileError naming it.
void write_text_file(const std::filesystem::path& path, const std::string& text);

}  // namespace gradus::training::internal
