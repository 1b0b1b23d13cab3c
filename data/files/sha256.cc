// Implementation of Sha256 with OpenSSL's EVP functions.
#include "gradus/data/files/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "gradus/data/files/input_file.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

namespace {

void check(bool ok) {
  if (!ok) throw Error("sha256", "the cryptographic library refuses to compute SHA-256");
}

constexpr size_t kChunk = 1 << 16;

}  // namespace

Sha256::Sha256() : state_(std::make_unique<State>()) {
  check(state_->context && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;

void Sha256::update(const void* bytes, int64_t n) {
  check(EVP_DigestUpdate(state_->context, bytes, static_cast<size_t>(n)) == 1);
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(state_->context, digest.data(), &size) == 1);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw FileError("sha256", path.string(), ": ", std::strerror(errno));
  Sha256 sha;
  std::vector<char> chunk(kChunk);
  ssize_t n = 0;
  while ((n = ::read(fd, chunk.data(), chunk.size())) > 0) sha.update(chunk.data(), n);
  const int error = errno;
  ::close(fd);
  if (n < 0) throw FileError("sha256", path.string(), ": ", std::strerror(error));
  return sha.hex();
}

std::string sha256_of_content(const std::filesystem::path& path, int64_t max_bytes) {
  InputFile file(path, "sha256");
  Sha256 sha;
  std::vector<char> chunk(kChunk);
  int64_t total = 0;
  while (const int64_t n = file.read(chunk.data(), static_cast<int64_t>(chunk.size()))) {
    total += n;
    if (total > max_bytes)
      throw FileError("sha256", path.string(), ": unpacks to more than ", max_bytes, " bytes");
    sha.update(chunk.data(), n);
  }
  return sha.hex();
}

}  // namespace gradus::data
