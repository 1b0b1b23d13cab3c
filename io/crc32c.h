// crc32c: CRC-32C (Castagnoli polynomial), the checksum of event file records, by table lookup. zlib's crc32 uses
// another polynomial.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gradus::io::internal {

inline constexpr std::array<uint32_t, 256> kCrc32cTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0x82f63b78u ^ c >> 1 : c >> 1;
    table[i] = c;
  }
  return table;
}();

inline uint32_t crc32c(std::string_view data) {
  uint32_t c = ~0u;
  for (const char byte : data) c = kCrc32cTable[(c ^ static_cast<unsigned char>(byte)) & 0xff] ^ c >> 8;
  return ~c;
}

}  // namespace gradus::io::internal
