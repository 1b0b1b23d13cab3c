// Image: 8-bit pixels, gray or RGB, in memory or decoded lazily from an ImageSource.
//
//   const data::Image photo = data::decode_image("dog.jpg");  // reads the header; decodes no pixels yet
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
  // Errors: ValueError unless the box is inside an image of this size, and not empty.
  void check_inside(const char* op, int64_t image_height, int64_t image_width) const;
};

struct Region;
class ImageSource;

// A value with copy-on-write pixels. Threads must not use one Image concurrently, but each may use its own
// copy.
class Image {
 public:
  // No image.
  Image() = default;
  // Allocates uninitialized pixels.
  // Errors: ValueError for a size outside [1, 2^24] or channels other than 1 (gray) and 3 (RGB).
  Image(int64_t height, int64_t width, int64_t channels);
  // Decodes from the source on the first access to pixels.
  // Errors: ValueError for null, and for such sizes.
  explicit Image(std::shared_ptr<const ImageSource> source);

  bool defined() const { return channels_ != 0; }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t channels() const { return channels_; }
  int64_t bytes() const { return height_ * width_ * channels_; }
  Box whole() const { return {0, 0, width_, height_}; }

  // Returns whether the pixels are in memory.
  bool is_decoded() const { return pixels_ != nullptr; }
  // Returns the pixels u8[height,width,channels], row-major, top row first, valid until mutable_data(),
  // assignment or destruction. The first call decodes the whole image and caches the pixels.
  // Errors: as decode; StateError if !defined().
  const uint8_t* data() const;
  // Returns writable pixels, as data(). Pixels shared with other Images are copied first.
  uint8_t* mutable_data();

  // Returns the pixels of a box.
  // Errors: as decode.
  Image crop(Box box) const;
  // Returns the pixels of a box, for a caller that downsizes them afterward. A source may scale the box down
  // by 2, 4 or 8, as long as its height and width are at least the given minima.
  // Errors: ValueError for a box that is empty or not inside the image; FileError for damaged data.
  Region decode(Box box, int64_t min_height, int64_t min_width) const;

 private:
  int64_t height_ = 0, width_ = 0, channels_ = 0;
  mutable std::shared_ptr<uint8_t[]> pixels_;
  mutable std::shared_ptr<const ImageSource> source_;  // null once the pixels are decoded
};

// Pixels that cover a box, possibly scaled down, and the box's position in them. After scaling, the edges of
// the box may be at fractional pixels: to resize the box, resize the rectangle (left, top, width, height).
// Without scaling, `image` is exactly the box.
struct Region {
  Image image;
  double left = 0, top = 0, width = 0, height = 0;  // of the box, in pixels of `image`
};

// Decodes an Image lazily, for example from a file's bytes. Several threads call the functions concurrently.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Sizes of the image, upright (after EXIF orientation), as for Image's constructor.
  virtual int64_t height() const = 0;
  virtual int64_t width() const = 0;
  virtual int64_t channels() const = 0;
  // Implements Image::decode. `box` is inside the image, and the minima are in [1, size of the box]; minima
  // equal to the box must give exactly the box. The result's image is decoded and has channels() channels.
  virtual Region decode(Box box, int64_t min_height, int64_t min_width) const = 0;

 protected:
  ImageSource() = default;
  ImageSource(const ImageSource&) = default;
  ImageSource& operator=(const ImageSource&) = default;
};

}  // namespace gradus::data
