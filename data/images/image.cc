// Image: u8 pixels [height, width, channels] with copy-on-write and lazy decoding. A defined Image has either
// a source (not decoded yet) or pixels; copies of the Image share either. One Image must not be used by
// several threads at once.
#include "gradus/data/images/image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

std::shared_ptr<uint8_t[]> allocate(int64_t bytes) {
  return std::make_shared_for_overwrite<uint8_t[]>(static_cast<size_t>(bytes));
}

void check_size(int64_t height, int64_t width, int64_t channels) {
  constexpr int64_t kMaxSide = int64_t{1} << 24;  // products of sizes do not overflow
  if (height < 1 || width < 1 || height > kMaxSide || width > kMaxSide || (channels != 1 && channels != 3))
    throw ValueError("Image", "expected height and width of 1 to ", kMaxSide, " and 1 or 3 channels, got ",
                     height, "x", width, "x", channels);
}

}  // namespace

void Box::check_inside(const char* op, int64_t image_height, int64_t image_width) const {
  if (left < 0 || top < 0 || width < 1 || height < 1 || width > image_width || height > image_height ||
      left > image_width - width || top > image_height - height)
    throw ValueError(op, "box of ", height, "x", width, " at row ", top, ", column ", left,
                     " is not inside the image of ", image_height, "x", image_width);
}

Image::Image(int64_t height, int64_t width, int64_t channels)
    : height_(height), width_(width), channels_(channels) {
  check_size(height, width, channels);
  pixels_ = allocate(bytes());
}

Image::Image(std::shared_ptr<const ImageSource> source) : source_(std::move(source)) {
  if (!source_) throw ValueError("Image", "a null source was given");
  check_size(source_->height(), source_->width(), source_->channels());
  height_ = source_->height();
  width_ = source_->width();
  channels_ = source_->channels();
}

const uint8_t* Image::data() const {
  if (!defined()) throw StateError("Image", "this is no image: it was made without a size");
  if (!pixels_) {
    pixels_ = source_->decode(whole(), height_, width_).image.pixels_;
    source_.reset();
  }
  return pixels_.get();
}

uint8_t* Image::mutable_data() {
  data();
  if (pixels_.use_count() > 1) {
    std::shared_ptr<uint8_t[]> own = allocate(bytes());
    std::memcpy(own.get(), pixels_.get(), static_cast<size_t>(bytes()));
    pixels_ = std::move(own);
  }
  return pixels_.get();
}

Image Image::crop(Box box) const { return decode(box, box.height, box.width).image; }

// A decoded image ignores the minima: the box is copied at full resolution. A source may downscale to them.
Region Image::decode(Box box, int64_t min_height, int64_t min_width) const {
  box.check_inside("Image", height_, width_);
  if (!is_decoded())
    return source_->decode(box, std::clamp<int64_t>(min_height, 1, box.height),
                           std::clamp<int64_t>(min_width, 1, box.width));
  Region region{*this, 0, 0, double(box.width), double(box.height)};
  if (box == whole()) return region;
  region.image = Image(box.height, box.width, channels_);
  const size_t row = static_cast<size_t>(box.width * channels_);
  for (int64_t y = 0; y < box.height; ++y)
    std::memcpy(region.image.pixels_.get() + y * row,
                pixels_.get() + ((box.top + y) * width_ + box.left) * channels_, row);
  return region;
}

}  // namespace gradus::data
