// Implementation of exif_orientation: a minimal TIFF parser.
#include "gradus/data/images/exif.h"

namespace gradus::data::internal {
namespace {

// Reads numbers in the byte order given by the first two bytes ("II" or "MM"). Numbers beyond the end are 0.
class TiffReader {
 public:
  explicit TiffReader(std::span<const uint8_t> bytes)
      : bytes_(bytes), big_endian_(bytes.size() >= 2 && bytes[0] == 'M') {}

  bool is_tiff() const {
    return bytes_.size() >= 8 && bytes_[0] == bytes_[1] && (bytes_[0] == 'I' || bytes_[0] == 'M') &&
           u16(2) == 42;
  }
  bool holds(uint64_t at, uint64_t count) const { return at <= bytes_.size() && count <= bytes_.size() - at; }
  uint32_t u16(uint64_t at) const { return number(at, 2); }
  uint32_t u32(uint64_t at) const { return number(at, 4); }

 private:
  uint32_t number(uint64_t at, uint64_t count) const {
    if (!holds(at, count)) return 0;
    uint32_t value = 0;
    for (uint64_t i = 0; i < count; ++i)
      value = (value << 8) | bytes_[big_endian_ ? at + i : at + count - 1 - i];
    return value;
  }

  std::span<const uint8_t> bytes_;
  bool big_endian_;
};

}  // namespace

int exif_orientation(std::span<const uint8_t> tiff) {
  constexpr uint32_t kOrientation = 0x0112, kShort = 3, kLong = 4;
  constexpr uint64_t kEntryBytes = 12;
  const TiffReader in(tiff);
  if (!in.is_tiff()) return 1;
  const uint64_t directory = in.u32(4), entries = in.u16(directory);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + i * kEntryBytes;
    if (!in.holds(entry, kEntryBytes)) return 1;
    if (in.u16(entry) != kOrientation) continue;
    const uint32_t type = in.u16(entry + 2), count = in.u32(entry + 4);
    if (count != 1 || (type != kShort && type != kLong)) return 1;
    const uint32_t value = type == kShort ? in.u16(entry + 8) : in.u32(entry + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace gradus::data::internal
