// SHA-256 digests of bytes and files, as 64 lower-case hexadecimal digits. The functions have no shared state.
// Each throws Error if OpenSSL provides no SHA-256.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gradus::data {

std::string sha256(std::string_view bytes);
// Errors: FileError.
std::string sha256_of_file(const std::filesystem::path& path);
// Returns the digest of a gzip file's decompressed content, or of the file itself if it is not gzip.
// Errors: FileError, also for damaged gzip data and for content of more than `max_bytes`.
std::string sha256_of_content(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace gradus::data
