// decode_image: JPEG and PNG files as Images. The header is read and checked at once, pixels when asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradus/data/images/image.h"

namespace gradus::data {

enum class ColorMode {
  kRGB,   // three channels, gray repeated (Pillow's convert("RGB"))
  kGray,  // one, of colors their luma (Pillow's convert("L"))
  kAsIs,  // one for gray files, three for others
  // One, of a PNG's stored numbers as they stand: entries of its palette, or grays. For masks of classes.
  kIndices,
};

struct DecodeOptions {
  ColorMode mode = ColorMode::kRGB;
  // Image::decode may have a JPEG decoded at 1/2, 1/4 or 1/8 of its size, which costs a part of the time.
  bool scaled = true;
  // Turn and mirror pixels as the file's EXIF tag says. torchvision's ImageFolder does not.
  bool exif_orientation = true;
  // Go on where data are damaged or end early, as far as the decoder can; what is missing is gray or black.
  bool allow_damaged = false;
  int64_t max_pixels = 89'478'485;         // height times width; more is refused before memory is taken
  int64_t max_bytes = int64_t{256} << 20;  // of the file
};

// Reads a JPEG (baseline, progressive, arithmetic; gray, YCbCr, RGB, CMYK, YCCK) or a PNG (any), told apart
// by their first bytes. Transparency is dropped, of 16-bit values the upper 8 bits are kept, color profiles
// are not applied. Pixels equal Pillow's. Errors, here and when pixels are decoded: FileError naming the file
// and what is wrong with it, with kIndices also for a JPEG, and for colors, transparency or 16 bits;
// ValueError for a limit below 1.
Image decode_image(const std::filesystem::path& path, const DecodeOptions& options = {});

// The same of a file's content; errors call it `name`.
Image decode_image(std::vector<uint8_t> content, const std::string& name, const DecodeOptions& options = {});

}  // namespace gradus::data
