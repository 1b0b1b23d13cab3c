// Extracts files from tar archives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradus::data {

// Extracts the members `names` (exact and distinct) of a tar archive, plain or gzip, to `dir`/name. Skips
// members whose file exists already. Each file is created atomically. Requested members must be regular files
// of at most `max_bytes`.
// Errors: FileError naming the archive and its defect, or the missing member.
void unpack_tar(const std::filesystem::path& archive, const std::filesystem::path& dir,
                const std::vector<std::string>& names, int64_t max_bytes = int64_t{1} << 30);

}  // namespace gradus::data
