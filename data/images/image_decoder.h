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
  kGray,  // one channel, the luma of colors (Pillow's convert("L"))
  kAsIs,  // one channel for gray files, three for others
  // One channel: a PNG's stored numbers, unchanged. They are indices into its palette, or grays. For
  // masks of classes.
  kIndices,
};

struct DecodeOptions {
  ColorMode mode = ColorMode::kRGB;
  // Lets Image::decode decode a JPEG at 1/2, 1/4 or 1/8 of its size, which takes less time.
  bool scaled = true;
  // Turns and mirrors pixels as the file's EXIF tag says. torchvision's ImageFolder does not.
  bool exif_orientation = true;
  // Accepts data that are damaged or end early, as far as the decoder can. Missing pixels are gray or black.
  bool allow_damaged = false;
  int64_t max_pixels = 89'478'485;         // height times width; more is refused before memory is taken
  int64_t max_bytes = int64_t{256} << 20;  // of the file
};

// Reads a JPEG (baseline, progressive, arithmetic; gray, YCbCr, RGB, CMYK, YCCK) or a PNG (any). The file's
// first bytes tell which. Drops transparency, keeps the upper 8 bits of 16-bit values, and does not apply
// color profiles. Pixels equal Pillow's.
// Errors: FileError naming the file and what is wrong with it, here and when pixels are decoded. With
// kIndices, FileError also for a JPEG, and for a PNG with colors, transparency or 16 bits. ValueError for
// a limit below 1.
Image decode_image(const std::filesystem::path& path, const DecodeOptions& options = {});

// Reads the content of a file likewise. Errors call it `name`.
Image decode_image(std::vector<uint8_t> content, const std::string& name, const DecodeOptions& options = {});

}  // namespace gradus::data
