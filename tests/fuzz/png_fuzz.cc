// Fuzz target: PNG files satisfy check_image(), as they are and with corrected checksums of their chunks, so
// that changes reach the decoder.
#include <zlib.h>

#include "gradus/tests/fuzz/fuzz.h"
#include "gradus/tests/fuzz/image_checks.h"

namespace gradus::fuzz {
namespace {

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

std::string with_checksums(std::string file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = big_endian(file, at);
    if (length > file.size() - at - 12) break;
    const auto* data = reinterpret_cast<const Bytef*>(file.data());
    const auto crc = static_cast<uint32_t>(crc32(0, data + at + 4, static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<char>(crc >> (24 - 8 * i));
    at += 12 + length;
  }
  return file;
}

}  // namespace

std::vector<std::string> seeds() { return contents("tests/data/golden/images", ".png"); }

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  const std::string repaired = gradus::fuzz::with_checksums(file);
  gradus::fuzz::check_image(repaired);
  if (repaired != file) gradus::fuzz::check_image(file);
  return 0;
}
