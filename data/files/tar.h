// Unpacking of tar archives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradus::data {

// Unpacks the members `names` of a tar archive, plain or gzip, to `dir`/name. Skips members that are there
// already. A file appears only when it is complete. Other members of the archive are passed over. Requested
// members must be regular files of at most `max_bytes`.
// Errors: FileError naming the archive and what is wrong with it, or the member that is missing.
void unpack_tar(const std::filesystem::path& archive, const std::filesystem::path& dir,
                const std::vector<std::string>& names, int64_t max_bytes = int64_t{1} << 30);

}  // namespace gradus::data
