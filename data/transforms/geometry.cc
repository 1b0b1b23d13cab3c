// Geometric transforms: they compute sizes, boxes and random draws, with torchvision's rounding, and call the
// operations of Picture, which transform image and mask alike. Random transforms seed their RandomNumbers
// with one draw per apply() from the thread's Context. apply() may run on several threads.
#include "gradus/data/transforms/geometry.h"

#include <algorithm>
#include <cmath>

#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

using internal::RandomNumbers;

constexpr int64_t kMaxSide = int64_t{1} << 24;  // pixels; as in Picture::resize

// Errors: ValueError unless both sides are in [1, kMaxSide].
void check_size(const char* op, Size2 size) {
  if (size.h < 1 || size.w < 1 || size.h > kMaxSide || size.w > kMaxSide)
    throw ValueError(op, "size must be 1 to ", kMaxSide, ", got ", size);
}

// Errors: ValueError unless 0 < low <= high < infinity.
void check_interval(const char* op, const char* option, Interval i) {
  if (!(i.low > 0 && i.low <= i.high && std::isfinite(i.high)))
    throw ValueError(op, option, " must be an interval above 0, got ", i.low, " to ", i.high);
}

// Rounds to the nearest integer, ties to even.
int64_t round_even(double x) { return static_cast<int64_t>(std::nearbyint(x)); }

// Returns `side` * to / from, rounded down, at least 1.
int64_t in_proportion(int64_t side, int64_t to, int64_t from) {
  const double scaled = static_cast<double>(to * side) / static_cast<double>(from);
  return std::max<int64_t>(static_cast<int64_t>(scaled), 1);
}

}  // namespace

Resize::Resize(ResizeOptions options) : options_(options) {
  const ResizeSize size = options.size;
  const Size2 given = size.shorter != 0 ? Size2{size.shorter, size.shorter} : size.both;
  check_size("Resize", given);
  if (!options.max_size) return;
  if (size.shorter == 0)
    throw ValueError("Resize", "max_size goes with one size, of the shorter side, got ", given);
  if (*options.max_size <= size.shorter)
    throw ValueError("Resize", "max_size must be larger than the shorter side's size ", size.shorter,
                     ", got ", *options.max_size);
}

void Resize::apply(Picture& picture) const {
  picture.require_image("Resize");
  const ResizeSize want = options_.size;
  Size2 size = want.both;
  if (want.shorter != 0) {
    const int64_t h = picture.height(), w = picture.width();
    // Keeps the aspect ratio; max_size limits the longer side.
    int64_t shorter = want.shorter, longer = in_proportion(std::max(h, w), shorter, std::min(h, w));
    if (options_.max_size && longer > *options_.max_size) {
      shorter = in_proportion(shorter, *options_.max_size, longer);
      longer = *options_.max_size;
    }
    size = w <= h ? Size2{longer, shorter} : Size2{shorter, longer};
  }
  picture.resize(size, options_.interpolation, options_.scaled_decoding);
}

CenterCrop::CenterCrop(CenterCropOptions options) : size_(options.size) { check_size("CenterCrop", size_); }

void CenterCrop::apply(Picture& picture) const {
  picture.require_image("CenterCrop");
  const int64_t lacking_h = std::max<int64_t>(size_.h - picture.height(), 0);
  const int64_t lacking_w = std::max<int64_t>(size_.w - picture.width(), 0);
  if (lacking_h > 0 || lacking_w > 0)
    picture.pad({lacking_w / 2, lacking_h / 2, (lacking_w + 1) / 2, (lacking_h + 1) / 2});
  const int64_t h = picture.height(), w = picture.width();
  picture.crop({round_even(static_cast<double>(w - size_.w) / 2.),
                round_even(static_cast<double>(h - size_.h) / 2.), size_.w, size_.h});
}

RandomCrop::RandomCrop(RandomCropOptions options) : options_(options) {
  check_size("RandomCrop", options.size);
}

void RandomCrop::apply(Picture& picture) const {
  picture.require_image("RandomCrop");
  const Size2 size = options_.size;
  const PadImageOptions how{options_.fill, options_.padding_mode};
  if (options_.padding != Padding()) picture.pad(options_.padding, how);
  if (options_.pad_if_needed) {
    const int64_t lacking_w = size.w - picture.width(), lacking_h = size.h - picture.height();
    // As in torchvision, the missing width is added on both sides.
    if (lacking_w > 0) picture.pad({lacking_w, 0}, how);
    if (lacking_h > 0) picture.pad({0, lacking_h}, how);
  }
  const int64_t h = picture.height(), w = picture.width();
  if (h < size.h || w < size.w)
    throw ValueError("RandomCrop", "expected an image of at least ", size, ", got ", Size2{h, w},
                     "; pad_if_needed = true pads it");
  RandomNumbers random;
  const int64_t top = random.uniform_int(h - size.h + 1), left = random.uniform_int(w - size.w + 1);
  picture.crop({left, top, size.w, size.h});
}

RandomResizedCrop::RandomResizedCrop(RandomResizedCropOptions options) : options_(options) {
  check_size("RandomResizedCrop", options.size);
  check_interval("RandomResizedCrop", "scale", options.scale);
  check_interval("RandomResizedCrop", "ratio", options.ratio);
}

Box RandomResizedCrop::draw_box(int64_t height, int64_t width) const {
  // Draws the area uniformly and the aspect ratio log-uniformly, until a box fits. A Box is
  // {left, top, width, height}.
  constexpr int kTries = 10;
  const Interval scale = options_.scale, ratio = options_.ratio;
  RandomNumbers random;
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(height * width) * random.uniform(scale.low, scale.high);
    const double r = std::exp(random.uniform(std::log(ratio.low), std::log(ratio.high)));
    const int64_t w = round_even(std::sqrt(area * r)), h = round_even(std::sqrt(area / r));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int64_t top = random.uniform_int(height - h + 1);
    return {random.uniform_int(width - w + 1), top, w, h};
  }
  // No draw has fit: the largest centered box whose aspect ratio is in the interval.
  int64_t h = height, w = width;
  const double own = static_cast<double>(width) / static_cast<double>(height);
  if (own < ratio.low) h = round_even(static_cast<double>(w) / ratio.low);
  if (own > ratio.high) w = round_even(static_cast<double>(h) * ratio.high);
  h = std::clamp<int64_t>(h, 1, height), w = std::clamp<int64_t>(w, 1, width);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

void RandomResizedCrop::apply(Picture& picture) const {
  picture.require_image("RandomResizedCrop");
  picture.crop(draw_box(picture.height(), picture.width()));
  picture.resize(options_.size, options_.interpolation, options_.scaled_decoding);
}

RandomHorizontalFlip::RandomHorizontalFlip(FlipOptions options)
    : p_(internal::check_probability("RandomHorizontalFlip", options.p)) {}

void RandomHorizontalFlip::apply(Picture& picture) const {
  picture.require_image("RandomHorizontalFlip");
  if (RandomNumbers().bernoulli(p_)) picture.mirror();
}

RandomVerticalFlip::RandomVerticalFlip(FlipOptions options)
    : p_(internal::check_probability("RandomVerticalFlip", options.p)) {}

void RandomVerticalFlip::apply(Picture& picture) const {
  picture.require_image("RandomVerticalFlip");
  if (RandomNumbers().bernoulli(p_)) picture.flip();
}

void Pad::apply(Picture& picture) const {
  picture.require_image("Pad");
  picture.pad(options_.padding, {options_.fill, options_.padding_mode});
}

}  // namespace gradus::data
