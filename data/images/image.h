// Image: 8-bit pixels, gray or RGB. They are decoded, or they come from a source that decodes them when
// they are asked for.
//
//   const data::Image photo = data::decode_image("dog.jpg");  // knows its size; no pixel is decoded yet
//   const data::Region r = photo.decode({.left = 40, .top = 0, .width = 600, .height = 600}, 224, 224);
//   r.image.data();  // rows of r.image.width() pixels of 3 bytes
#pragma once

#include <cstdint>
#include <memory>

namespace gradus::data {

// A rectangle of pixels; (0, 0) is the image's upper left corner.
struct Box {
  int64_t left = 0, top = 0, width = 0, height = 0;

  bool operator==(const Box&) const = default;
};

struct Region;
class ImageSource;

// A value: copies share their pixels until one of them is written to. Several threads must not use one Image
// at once, but each may use its own copy.
class Image {
 public:
  // No image.
  Image() = default;
  // Takes memory for pixels and leaves them unset.
  // Errors: ValueError for a size below 1 or channels other than 1 (gray) and 3 (RGB).
  Image(int64_t height, int64_t width, int64_t channels);
  // Decodes when pixels are asked for.
  // Errors: ValueError for null.
  explicit Image(std::shared_ptr<const ImageSource> source);

  bool defined() const { return channels_ != 0; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  int64_t bytes() const { return height_ * width_ * channels_; }
  Box whole() const { return {0, 0, width_, height_}; }

  // Says whether the pixels are in memory.
  bool is_decoded() const { return pixels_ != nullptr; }
  // Rows from the top, each of width() pixels of channels() bytes, without gaps. The first call decodes the
  // whole image and keeps the pixels.
  // Errors: as decode; StateError for no image.
  const uint8_t* data() const;
  // Returns the pixels to write to. Pixels that other Images share are copied first.
  uint8_t* mutable_data();

  // Returns the pixels of a box.
  // Errors: as decode.
  Image crop(Box box) const;
  // Returns the pixels of a box, for a caller that will make them smaller. A source may scale the box down by
  // 2, 4 or 8, as long as its height and width stay at least the given minima.
  // Errors: ValueError for a box that is empty or not inside the image; FileError for damaged data.
  Region decode(Box box, int64_t min_height, int64_t min_width) const;

 private:
  int64_t height_ = 0, width_ = 0, channels_ = 0;
  mutable std::shared_ptr<uint8_t[]> pixels_;
  mutable std::shared_ptr<const ImageSource> source_;  // until the pixels are there
};

// Pixels that cover a box, perhaps scaled down, and the place of the box in them. When they are scaled, the
// edges of the box may lie inside pixels. Then resize the rectangle (left, top, width, height) to resize the
// box. When they are not scaled, `image` is the box.
struct Region {
  Image image;
  double left = 0, top = 0, width = 0, height = 0;  // of the box, in pixels of `image`
};

// What an Image decodes from: a file's bytes, say. Its functions are called from several threads at once.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Sizes of the upright image.
  virtual int64_t height() const = 0;
  virtual int64_t width() const = 0;
  virtual int64_t channels() const = 0;
  // Does what Image::decode does. `box` lies inside the image, and the minima are at least 1 and at most
  // the box's size.
  virtual Region decode(Box box, int64_t min_height, int64_t min_width) const = 0;

 protected:
  ImageSource() = default;
  ImageSource(const ImageSource&) = default;
  ImageSource& operator=(const ImageSource&) = default;
};

}  // namespace gradus::data
