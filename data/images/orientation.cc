// EXIF orientation. exif_orientation finds tag 0x0112 in the first directory (IFD0) of a TIFF structure.
// Every read is checked against the end of the bytes, so malformed files give orientation 1 (upright).
// Orientation maps boxes and pixels between the image as stored in the file and the upright image by an
// optional transposition and mirroring.
#include "gradus/data/images/orientation.h"

#include <utility>

namespace gradus::data::internal {
namespace {

// Reads numbers in the byte order given by the first two bytes: "II" little-endian, "MM" big-endian. Numbers
// beyond the end of the bytes read as 0. Positions are offsets in bytes from the start of the TIFF structure.
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
  constexpr uint64_t kEntryBytes = 12;  // tag u16, type u16, count u32, value or offset 4 bytes
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

Orientation Orientation::from_exif(int value) {
  // By the EXIF value: swaps_axes, flips_x, flips_y.
  static constexpr Orientation kOrientations[] = {
      {false, false, false}, {false, false, false}, {false, true, false},
      {false, true, true},   {false, false, true},  {true, false, false},
      {true, false, true},   {true, true, true},    {true, true, false}};
  return value >= 1 && value <= 8 ? kOrientations[value] : Orientation();
}

Box Orientation::file_box(Box box, int64_t file_height, int64_t file_width) const {
  if (swaps_axes) box = {box.top, box.left, box.height, box.width};
  if (flips_x) box.left = file_width - box.left - box.width;
  if (flips_y) box.top = file_height - box.top - box.height;
  return box;
}

// Copies pixels row by row of the result, with strides in the file's image.
Region Orientation::upright(const Region& file) const {
  if (is_upright()) return file;
  const int64_t h = file.image.height(), w = file.image.width(), c = file.image.channels();
  Region out{Image(swaps_axes ? w : h, swaps_axes ? h : w, c), file.left, file.top, file.width, file.height};
  if (flips_x) out.left = double(w) - file.left - file.width;
  if (flips_y) out.top = double(h) - file.top - file.height;
  if (swaps_axes) {
    std::swap(out.left, out.top);
    std::swap(out.width, out.height);
  }
  // Strides, in bytes of the file's image, of one pixel along the upright image's x and y.
  const int64_t along_x = flips_x ? -c : c, along_y = flips_y ? -w * c : w * c;
  const int64_t step_x = swaps_axes ? along_y : along_x, step_y = swaps_axes ? along_x : along_y;
  const uint8_t* row = file.image.data() + (flips_x ? (w - 1) * c : 0) + (flips_y ? (h - 1) * w * c : 0);
  uint8_t* to = out.image.mutable_data();
  for (int64_t y = 0; y < out.image.height(); ++y, row += step_y) {
    const uint8_t* from = row;
    for (int64_t x = 0; x < out.image.width(); ++x, from += step_x, to += c)
      for (int64_t k = 0; k < c; ++k) to[k] = from[k];
  }
  return out;
}

}  // namespace gradus::data::internal
