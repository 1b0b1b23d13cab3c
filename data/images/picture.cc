// Picture, the argument of transforms: an 8-bit image [H, W, C], or from to_float() on a tensor f32[C, H, W].
// Crops, resizes and mirroring only change the fields box_, resize_, window_ and is_mirrored_; materialize()
// and the conversion to floats evaluate them in as few passes over the pixels as possible. Pointwise
// operations on floats change a table of 256 values per channel. A mask is a Picture too, and follows all
// geometric operations.
#include "gradus/data/images/picture.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "gradus/data/images/orientation.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

const std::shared_ptr<const ValueTable>& ValueTable::plain() {
  static const auto& table = *new std::shared_ptr<const ValueTable>([] {
    auto t = std::make_shared<ValueTable>();
    for (auto& values : t->values)
      for (int v = 0; v < 256; ++v) values[v] = static_cast<float>(v) / 255.f;
    return t;
  }());
  return table;
}

Picture::Picture(Image image) : stage_(Stage::kImage) { set(std::move(image)); }

Picture::Picture(Image image, Image mask, MaskOptions options) : Picture(std::move(image)) {
  if (!mask.defined() || mask.channels() != 1)
    throw ValueError("Picture", "expected a mask of one channel, got ",
                     mask.defined() ? concat(mask.channels(), " channels") : "none");
  if (mask.height() != height() || mask.width() != width())
    throw ValueError("Picture", "the mask is ", Size2(mask.height(), mask.width()), ", the image ",
                     Size2(height(), width()));
  mask_fill_ = options.fill;
  mask_.emplace_back(std::move(mask));
}

Picture::Picture(Tensor tensor) : stage_(Stage::kTensor) { set(std::move(tensor)); }

void Picture::require_image(const char* op) const {
  if (!is_image()) throw StateError(op, "works on images, but this is a tensor: it belongs before ToTensor");
}

void Picture::require_tensor(const char* op) const {
  if (is_image()) throw StateError(op, "works on tensors, but this is an image: it belongs after ToTensor");
}

Picture& Picture::set(Image image) {
  require_image("Picture");
  if (!image.defined()) throw StateError("Picture", "there is no image");
  if (has_mask() && (image.height() != height() || image.width() != width()))
    throw StateError(
        "Picture", "a step makes ", Size2(image.height(), image.width()), " of an image of ",
        Size2(height(), width()),
        ", which its mask does not follow: crop, resize, pad, mirror and flip the Picture instead");
  replace(std::move(image));
  return *this;
}

// Replaces the pixels, and drops the pending operations. Does not change the mask.
void Picture::replace(Image image) {
  image_ = std::move(image);
  box_ = image_.whole();
  resize_.reset();
  is_mirrored_ = false;
}

Picture& Picture::set(Tensor tensor) {
  require_tensor("Picture");
  if (!tensor.defined()) throw StateError("Picture", "there is no tensor");
  stage_ = Stage::kTensor;
  tensor_ = std::move(tensor);
  value_table_.reset();
  image_ = Image();
  return *this;
}

Shape Picture::shape() const {
  return stage_ == Stage::kTensor ? tensor_.shape() : Shape{channels(), height(), width()};
}

DType Picture::dtype() const { return stage_ == Stage::kTensor ? tensor_.dtype() : DType::kF32; }

int64_t Picture::height() const {
  if (stage_ == Stage::kTensor) return tensor_.size(-2);
  return resize_ ? window_.height : box_.height;
}
int64_t Picture::width() const {
  if (stage_ == Stage::kTensor) return tensor_.size(-1);
  return resize_ ? window_.width : box_.width;
}
int64_t Picture::channels() const { return stage_ == Stage::kTensor ? tensor_.size(-3) : image_.channels(); }

Picture& Picture::crop(Box box) {
  require_image("crop");
  box.check_inside("crop", height(), width());
  for (Picture& mask : mask_) mask.crop(box);
  if (is_mirrored_) box.left = width() - box.left - box.width;
  Box& outer = resize_ ? window_ : box_;
  outer = {outer.left + box.left, outer.top + box.top, box.width, box.height};
  return *this;
}

Picture& Picture::resize(Size2 size, Interpolation filter, bool scaled_decoding) {
  require_image("resize");
  constexpr int64_t kMaxSide = int64_t{1} << 24;
  if (size.h < 1 || size.w < 1 || size.h > kMaxSide || size.w > kMaxSide)
    throw ValueError("resize", "sizes must be 1 to ", kMaxSide, ", got ", size);
  for (Picture& mask : mask_) mask.resize(size, Interpolation::kNearest);
  if (resize_ || is_mirrored_) replace(image());
  if (size == Size2{box_.height, box_.width}) return *this;
  resize_ = Resize{size, filter, scaled_decoding};
  window_ = {0, 0, size.w, size.h};
  return *this;
}

Picture& Picture::mirror() {
  require_image("mirror");
  for (Picture& mask : mask_) mask.mirror();
  is_mirrored_ = !is_mirrored_;
  return *this;
}

Picture& Picture::flip() {
  require_image("flip");
  for (Picture& mask : mask_) mask.flip();
  replace(vflip(image()));
  return *this;
}

Picture& Picture::pad(Padding padding, PadImageOptions options) {
  require_image("pad");
  for (Picture& mask : mask_) mask.pad(padding, {.fill = mask_fill_, .mode = options.mode});
  replace(data::pad(image(), padding, options));
  return *this;
}

Picture& Picture::to_float() {
  require_image("ToTensor");
  stage_ = Stage::kFloats;
  value_table_ = ValueTable::plain();
  return *this;
}

namespace {

using internal::AxisWeights;
using internal::Pixels;

Pixels pixels_of(const Image& image) {
  return {image.data(), image.height(), image.width(), image.channels()};
}

// Returns the window of `in` resized to `size` with Interpolation::kNearest.
Image resize_nearest(const Image& in, Size2 size, Box window) {
  const int64_t c = in.channels();
  Image out(window.height, window.width, c);
  uint8_t* to = out.mutable_data();
  const std::vector<int32_t> columns =
      internal::nearest_inputs(in.width(), size.w, window.left, window.left + window.width);
  for (int32_t y : internal::nearest_inputs(in.height(), size.h, window.top, window.top + window.height))
    for (int32_t x : columns) {
      std::memcpy(to, in.data() + (int64_t{y} * in.width() + x) * c, static_cast<size_t>(c));
      to += c;
    }
  return out;
}

// Resamples the rows of `image` by `x` and the columns by `y`; null: unchanged. `columns_first`: columns
// before rows.
Image resample(Image image, const AxisWeights* x, const AxisWeights* y, bool columns_first) {
  const auto resample_rows = [&] {
    if (!x) return;
    Image out(image.height(), static_cast<int64_t>(x->start.size()), image.channels());
    internal::resample_rows(pixels_of(image), *x, out.mutable_data());
    image = out;
  };
  if (!columns_first) resample_rows();
  if (y) {
    Image out(static_cast<int64_t>(y->start.size()), image.width(), image.channels());
    internal::resample_columns(pixels_of(image), *y, out.mutable_data());
    image = out;
  }
  if (columns_first) resample_rows();
  return image;
}

}  // namespace

// Returns the window (window_) of the crop (box_) resized to resize_->size. Computes only the pixels of the
// window, from only the source pixels on which the window depends.
Image Picture::resized() const {
  const auto& [size, filter, scaled_decoding] = *resize_;
  if (filter == Interpolation::kNearest) return resize_nearest(image_.crop(box_), size, window_);
  const auto weights_of_rows = [&](int64_t in, double low, double high) {
    return internal::axis_weights(in, low, high, size.h, filter, window_.top, window_.top + window_.height);
  };
  const auto weights_of_columns = [&](int64_t in, double low, double high) {
    return internal::axis_weights(in, low, high, size.w, filter, window_.left, window_.left + window_.width);
  };
  AxisWeights y = weights_of_rows(box_.height, 0, static_cast<double>(box_.height));
  AxisWeights x = weights_of_columns(box_.width, 0, static_cast<double>(box_.width));
  // The part of the box on which the window depends.
  Box source{x.first, y.first, x.last - x.first, y.last - y.first};
  bool keeps_rows = size.h == box_.height, keeps_columns = size.w == box_.width;
  if (keeps_rows) source.top = window_.top, source.height = window_.height;
  if (keeps_columns) source.left = window_.left, source.width = window_.width;
  Image part;
  if (scaled_decoding) {
    const Region region = image_.decode(box_, size.h, size.w);
    part = region.image;
    if (part.height() != box_.height || part.width() != box_.width) {
      y = weights_of_rows(part.height(), region.top, region.top + region.height);
      x = weights_of_columns(part.width(), region.left, region.left + region.width);
      keeps_rows = keeps_columns = false;
      source = {x.first, y.first, x.last - x.first, y.last - y.first};
    }
    part = part.crop(source);
  } else {
    part = image_.crop({box_.left + source.left, box_.top + source.top, source.width, source.height});
  }
  // Order of passes as in Pillow 13; it affects results, since the first pass rounds to 8 bits.
  const int64_t fewer_rows = box_.height - size.h, fewer_columns = box_.width - size.w;
  return resample(part, keeps_columns ? nullptr : &x, keeps_rows ? nullptr : &y,
                  fewer_rows > std::max<int64_t>(0, 2 * fewer_columns));
}

// Applies all pending operations except mirroring, and returns the pixels.
const Image& Picture::materialize() {
  if (resize_) {
    image_ = resized();
  } else if (box_ != image_.whole()) {
    image_ = image_.crop(box_);
  }
  resize_.reset();
  box_ = image_.whole();
  return image_;
}

namespace {

// internal::to_floats with the number of channels known at compile time.
template <int kChannels> void to_floats(Pixels in, const ValueTable& table, bool is_mirrored, float* out) {
  const uint8_t* row = in.data;
  const int64_t step = is_mirrored ? -kChannels : kChannels;
  for (int64_t y = 0; y < in.height; ++y, row += in.width * kChannels) {
    const uint8_t* from = is_mirrored ? row + (in.width - 1) * kChannels : row;
    for (int64_t x = 0; x < in.width; ++x, from += step, out += kChannels)
      for (int c = 0; c < kChannels; ++c) out[c] = table.values[c][from[c]];
  }
}

// Returns the strides of channels-last memory for the shape [C, H, W].
Strides pixel_strides(const Shape& shape) { return {1, shape[2] * shape[0], shape[0]}; }

// Copies f32[C,H,W] with any strides to `out`, channels-last.
void copy_channels_last(const Tensor& x, float* out) {
  const int64_t channels = x.size(0), h = x.size(1), w = x.size(2);
  const float* from = x.ptr<float>();
  for (int64_t i = 0; i < h; ++i) {
    for (int64_t j = 0; j < w; ++j)
      for (int64_t c = 0; c < channels; ++c)
        *out++ = from[c * x.strides()[0] + i * x.strides()[1] + j * x.strides()[2]];
  }
}

}  // namespace

void internal::to_floats(Pixels in, const ValueTable& table, bool is_mirrored, float* out) {
  in.channels == 3 ? data::to_floats<3>(in, table, is_mirrored, out)
                   : data::to_floats<1>(in, table, is_mirrored, out);
}

Image Picture::image() {
  require_image("Picture");
  materialize();
  if (is_mirrored_) replace(internal::Orientation{.flips_x = true}.upright(image_));
  return image_;
}

Tensor Picture::mask() {
  if (!has_mask()) throw StateError("Picture", "there is no mask");
  const Image classes = mask_[0].image();
  Tensor x = empty({classes.height(), classes.width()}, {.dtype = DType::kI64});
  std::copy_n(classes.data(), classes.bytes(), x.ptr<int64_t>());
  return x;
}

void Picture::write_channels_last(float* out) {
  require_tensor("Picture");
  if (stage_ == Stage::kTensor) {
    if (tensor_.is_dense() && tensor_.strides() == pixel_strides(tensor_.shape())) {
      std::memcpy(out, tensor_.raw_ptr(), static_cast<size_t>(tensor_.nbytes()));
    } else {
      copy_channels_last(tensor_, out);
    }
    return;
  }
  internal::to_floats(pixels_of(materialize()), *value_table_, is_mirrored_, out);
}

Tensor Picture::channels_last_copy() {
  require_tensor("Picture");
  const Shape shape = this->shape();
  if (shape.size() != 3 || dtype() != DType::kF32)
    throw ShapeError("Picture", "expected f32[C,H,W], got ", describe(tensor_));
  Tensor floats = empty_strided(shape, pixel_strides(shape), {DType::kF32});
  write_channels_last(floats.ptr<float>());
  return floats;
}

Tensor Picture::tensor() {
  require_tensor("Picture");
  if (stage_ == Stage::kTensor && tensor_.is_row_major()) return tensor_;
  if (stage_ == Stage::kTensor && (tensor_.dim() != 3 || dtype() != DType::kF32)) return tensor_;
  const Tensor last = stage_ == Stage::kTensor ? tensor_ : channels_last_copy();
  Tensor rows = empty(last.shape(), {DType::kF32});
  float* out = rows.ptr<float>();
  for (int64_t c = 0; c < last.size(0); ++c) {
    const float* plane = last.ptr<float>() + c * last.strides()[0];
    for (int64_t y = 0; y < last.size(1); ++y)
      for (int64_t x = 0; x < last.size(2); ++x)
        *out++ = plane[y * last.strides()[1] + x * last.strides()[2]];
  }
  set(rows);
  return rows;
}

// Replaces each value v of channel c by f(c, v): in the table, or, once the floats exist, in a copy of the
// tensor.
template <class F> Picture& Picture::map_values(F&& f) {
  if (stage_ == Stage::kFloats) {
    auto mapped = std::make_shared<ValueTable>(*value_table_);
    for (int64_t c = 0; c < channels(); ++c)
      for (float& v : mapped->values[c]) v = f(static_cast<size_t>(c), v);
    value_table_ = std::move(mapped);
    return *this;
  }
  Tensor floats = channels_last_copy();
  float* p = floats.ptr<float>();
  const size_t channels = static_cast<size_t>(floats.size(0));
  for (int64_t i = 0; i < floats.numel(); i += static_cast<int64_t>(channels))
    for (size_t c = 0; c < channels; ++c) p[static_cast<size_t>(i) + c] = f(c, p[static_cast<size_t>(i) + c]);
  return set(floats);
}

Picture& Picture::normalize(std::span<const float> mean, std::span<const float> std) {
  require_tensor("Normalize");
  const size_t n = static_cast<size_t>(channels());
  if ((mean.size() != n && mean.size() != 1) || (std.size() != n && std.size() != 1))
    throw ValueError("Normalize", "expected a mean and a std for each of ", n, " channels, got ", mean.size(),
                     " and ", std.size());
  return map_values(
      [&](size_t c, float v) { return (v - mean[mean.size() == 1 ? 0 : c]) / std[std.size() == 1 ? 0 : c]; });
}

Picture& Picture::shift(std::span<const float> offset) {
  require_tensor("Lighting");
  if (offset.size() != static_cast<size_t>(channels()))
    throw ValueError("Lighting", "expected an image of ", offset.size(), " channels, got ", channels());
  return map_values([&](size_t c, float v) { return v + offset[c]; });
}

}  // namespace gradus::data
