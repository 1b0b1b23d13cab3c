// decode_image: opens JPEG, PNG and WebP files as Images. The file is read into memory and its header is checked
// immediately; pixels are decoded lazily.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "gradus/data/images/image.h"

namespace gradus::data {

enum class ColorMode {
  kRGB,   // three channels (Pillow's convert("RGB"))
  kGray,  // one channel, luma (Pillow's convert("L"))
  kAsIs,  // one channel for gray files, three for others
  // One channel: the stored values of a PNG, palette indices or grays, for segmentation masks.
  kIndices,
};

struct DecodeOptions {
  ColorMode mode = ColorMode::kRGB;
  // Allows Image::decode to decode a JPEG at 1/2, 1/4 or 1/8 of its size, which is faster.
  bool scaled = true;
  // Applies the file's EXIF orientation. torchvision's ImageFolder does not.
  bool exif_orientation = true;
  // Accepts damaged or truncated data as far as the decoder can. Missing pixels are gray or black.
  bool allow_damaged = false;
  int64_t max_pixels = 89'478'485;         // limit of height * width, checked before memory is allocated
  int64_t max_bytes = int64_t{256} << 20;  // limit of the file's size
};

// Reads a JPEG (baseline, progressive, arithmetic; gray, YCbCr, RGB, CMYK, YCCK) a PNG (any) or a WebP
// without animation; the file's first bytes determine which. Drops transparency, keeps the upper 8 bits of 16-bit
// values, and applies neither color profiles nor the orientation of a WebP. Pixels equal Pillow's.
// Errors: FileError naming the file and its defect, here and when pixels are decoded. With kIndices,
// FileError also for a JPEG or WebP, and for a PNG with colors, transparency or 16 bits. ValueError for a limit below
// 1.
Image decode_image(const std::filesystem::path& path, const DecodeOptions& options = {});

// Decodes the content of a file. `name` is the file's name in errors.
Image decode_image(std::vector<uint8_t> content, const std::string& name, const DecodeOptions& options = {});

}  // namespace gradus::data
