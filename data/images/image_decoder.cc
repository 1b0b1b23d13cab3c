// decode_image: reads the bytes and the header of a JPEG, PNG or WebP file. Pixels are decoded on demand, by box:
// the box of the upright image is converted to the file's coordinates by the EXIF orientation, decoded at
// 1/1, 1/2, 1/4 or 1/8 of its size (JPEG only), and converted back.
#include "gradus/data/images/image_decoder.h"

#include <algorithm>
#include <span>
#include <utility>

#include "gradus/data/files/input_file.h"
#include "gradus/data/images/encoded_image.h"
#include "gradus/data/images/image_ops.h"
#include "gradus/data/images/orientation.h"

namespace gradus::data {
namespace {

using internal::EncodedImage;
using internal::ImageHeader;
using internal::Orientation;

// The bytes of a file, as the source of an Image. Immutable, so threads may decode concurrently.
class FileSource : public ImageSource {
 public:
  explicit FileSource(EncodedImage file)
      : file_(std::move(file)),
        is_jpeg_(internal::is_jpeg(file_)),
        is_webp_(internal::is_webp(file_)),
        header_(is_jpeg_   ? internal::read_jpeg_header(file_)
                : is_webp_ ? internal::read_webp_header(file_)
                           : internal::read_png_header(file_)) {
    if ((is_jpeg_ || is_webp_) && file_.options.mode == ColorMode::kIndices)
      file_.fail("is a ", is_jpeg_ ? "JPEG" : "WebP", ", which keeps no exact numbers; expected a PNG");
    if (file_.options.exif_orientation) orientation_ = Orientation::from_exif(header_.orientation);
  }

  int64_t height() const override { return orientation_.swaps_axes ? header_.width : header_.height; }
  int64_t width() const override { return orientation_.swaps_axes ? header_.height : header_.width; }
  int64_t channels() const override {
    const ColorMode mode = file_.options.mode;
    return mode == ColorMode::kRGB                                   ? 3
           : mode == ColorMode::kGray || mode == ColorMode::kIndices ? 1
                                                                     : header_.channels;
  }

  Region decode(Box box, int64_t min_height, int64_t min_width) const override {
    const int scale = scale_for(box, min_height, min_width);
    Region region = orientation_.upright(
        decode_in_file(orientation_.file_box(box, header_.height, header_.width), scale));
    if (region.image.channels() != channels()) region.image = to_grayscale(region.image);
    return region;
  }

 private:
  // Returns the largest divisor at which the box is still at least min_height by min_width scaled pixels.
  int scale_for(Box box, int64_t min_height, int64_t min_width) const {
    if (!header_.can_scale || !file_.options.scaled) return 1;
    for (const int scale : {8, 4, 2})
      if (box.height / scale >= min_height && box.width / scale >= min_width) return scale;
    return 1;
  }

  // Decodes a box in the file's coordinates, before orientation, with edges rounded outward to scaled pixels.
  Region decode_in_file(Box box, int scale) const {
    const int64_t left = box.left / scale, right = (box.left + box.width + scale - 1) / scale;
    const int64_t top = box.top / scale, bottom = (box.top + box.height + scale - 1) / scale;
    const Box scaled{left, top, right - left, bottom - top};
    const int64_t decoded = header_.channels == 1 ? channels() : 3;
    Region region{is_jpeg_   ? internal::decode_jpeg(file_, scaled, scale, decoded)
                  : is_webp_ ? internal::decode_webp(file_, scaled)
                             : internal::decode_png(file_, scaled, decoded)};
    region.left = double(box.left) / scale - double(left);
    region.top = double(box.top) / scale - double(top);
    region.width = double(box.width) / scale;
    region.height = double(box.height) / scale;
    return region;
  }

  EncodedImage file_;
  bool is_jpeg_, is_webp_;  // neither: PNG
  ImageHeader header_;      // sizes as stored, before orientation
  Orientation orientation_;
};

// Checks the limits and the format, and reads the header.
Image open(EncodedImage file) {
  if (file.options.max_pixels < 1 || file.options.max_bytes < 1)
    throw ValueError("decode_image", "max_pixels and max_bytes must be at least 1, got ",
                     file.options.max_pixels, " and ", file.options.max_bytes);
  if (static_cast<int64_t>(file.bytes.size()) > file.options.max_bytes)
    file.fail("has ", file.bytes.size(), " bytes, more than the limit of ", file.options.max_bytes);
  if (file.bytes.empty()) file.fail("is empty");
  if (!internal::is_jpeg(file) && !internal::is_png(file) && !internal::is_webp(file))
    file.fail("is neither JPEG, PNG nor WebP: starts with ",
              internal::hex(std::span(file.bytes).first(std::min<size_t>(file.bytes.size(), 8))));
  return Image(std::make_shared<FileSource>(std::move(file)));
}

}  // namespace

Image decode_image(const std::filesystem::path& path, const DecodeOptions& options) {
  InputFile in(path, "decode_image");
  EncodedImage file{path.string(), {}, options};
  if (in.is_gzip()) file.fail("is neither JPEG, PNG nor WebP, but gzip data");
  if (in.file_size() > options.max_bytes)
    file.fail("has ", in.file_size(), " bytes, more than the limit of ", options.max_bytes);
  file.bytes.resize(static_cast<size_t>(in.file_size()));
  in.read(file.bytes.data(), in.file_size());
  return open(std::move(file));
}

Image decode_image(std::vector<uint8_t> content, const std::string& name, const DecodeOptions& options) {
  return open({name, std::move(content), options});
}

}  // namespace gradus::data
