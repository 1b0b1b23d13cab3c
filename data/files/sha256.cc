// SHA-256 digests with OpenSSL's EVP functions, of bytes, of a file, or of the content that InputFile reads,
// decompressed if it is gzip. Files are read in chunks of 64 KiB, so memory use does not depend on their
// size. An OpenSSL that provides no SHA-256 is an Error.
#include "gradus/data/files/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "gradus/data/files/input_file.h"
#include "gradus/io/file.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

constexpr const char* kOp = "sha256";

void check(bool ok) {
  if (!ok) throw Error(kOp, "the cryptographic library refuses to compute SHA-256");
}

// Returns the digest of the bytes that next() returns, up to the first empty chunk.
template <class Next> std::string digest_of(Next next) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  check(context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  for (std::string_view chunk; !(chunk = next()).empty();)
    check(EVP_DigestUpdate(context.get(), chunk.data(), chunk.size()) == 1);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(context.get(), digest.data(), &size) == 1);
  return internal::hex(std::span(digest).first(size));
}

constexpr int64_t kChunk = 1 << 16;

}  // namespace

std::string sha256(std::string_view bytes) {
  return digest_of([&] { return std::exchange(bytes, {}); });
}

std::string sha256_of_file(const std::filesystem::path& path) {
  io::FileReader file(path, {.op = kOp});
  std::vector<char> chunk(kChunk);
  return digest_of([&] {
    const int64_t n = std::min(kChunk, file.remaining());
    file.read(chunk.data(), n);
    return std::string_view(chunk.data(), static_cast<size_t>(n));
  });
}

std::string sha256_of_content(const std::filesystem::path& path, int64_t max_bytes) {
  InputFile file(path, kOp);
  std::vector<char> chunk(kChunk);
  int64_t total = 0;
  return digest_of([&] {
    const int64_t n = file.read(chunk.data(), kChunk);
    total += n;
    if (total > max_bytes)
      throw FileError(kOp, path.string(), ": unpacks to more than ", max_bytes, " bytes");
    return std::string_view(chunk.data(), static_cast<size_t>(n));
  });
}

}  // namespace gradus::data
