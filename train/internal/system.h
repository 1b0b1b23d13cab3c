// Values of the process for a summary, and writing the summary.
#pragma once

#include <filesystem>
#include <string>

namespace gradus::training::internal {

// The peak resident memory of the process, in MiB.
double peak_rss_mib();

// Writes `text` to a file.
// Errors: FileError naming it.
void write_text_file(const std::filesystem::path& path, const std::string& text);

}  // namespace gradus::training::internal
