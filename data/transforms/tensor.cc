// Normalize, Lighting and RandomErasing on a Picture, an image that is either lazily converted bytes with a
// table of the f32 value per channel and byte, or an f32 tensor [C, H, W] with channels last in memory. A
// picture before ToTensor is a StateError. Random numbers come from the Context of the calling thread.
#include "gradus/data/transforms/tensor.h"

#include <algorithm>
#include <cmath>

#include "gradus/data/transforms/random_numbers.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

using internal::RandomNumbers;

template Transform::Transform(ToTensor&&);
template Transform::Transform(Normalize&&);

Normalize::Normalize(NormalizeOptions options)
    : mean_(options.mean.begin(), options.mean.end()), std_(options.std.begin(), options.std.end()) {
  if (mean_.empty() || std_.empty()) throw ValueError("Normalize", "needs a mean and a std for each channel");
  for (float s : std_)
    if (!(s > 0)) throw ValueError("Normalize", "std must be above 0, got ", s);
  auto table = std::make_shared<ValueTable>(*ValueTable::plain());
  for (size_t c = 0; c < 3; ++c) {
    const float mean = mean_[std::min(c, mean_.size() - 1)], std = std_[std::min(c, std_.size() - 1)];
    for (float& v : table->values[c]) v = (v - mean) / std;
  }
  normalized_table_ = std::move(table);
}

// Bytes whose values are those of ToTensor get the table of the constructor; other pictures compute the
// formula.
void Normalize::apply(Picture& picture) const {
  const size_t n = picture.is_image() ? 0 : static_cast<size_t>(picture.channels());
  const bool fits = (mean_.size() == n || mean_.size() == 1) && (std_.size() == n || std_.size() == 1);
  if (fits && picture.value_table() == ValueTable::plain()) return picture.set_value_table(normalized_table_);
  picture.normalize(mean_, std_);
}

Lighting::Lighting(LightingOptions options) : options_(options) {
  if (!(options.std >= 0)) throw ValueError("Lighting", "std must not be negative, got ", options.std);
}

void Lighting::apply(Picture& picture) const {
  picture.require_tensor("Lighting");
  RandomNumbers random;
  std::array<float, 3> offset{};
  std::array<double, 3> sum{};
  for (size_t k = 0; k < 3; ++k) {
    const double weight = options_.std * random.normal() * options_.values[k];
    for (size_t c = 0; c < 3; ++c) sum[c] += weight * options_.vectors[c][k];
  }
  for (size_t c = 0; c < 3; ++c) offset[c] = static_cast<float>(sum[c]);
  picture.shift(offset);
}

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(std::move(options)) {
  const RandomErasingOptions& o = options_;
  internal::check_probability("RandomErasing", o.p);
  if (!(o.scale.low >= 0 && o.scale.low <= o.scale.high && o.scale.high <= 1))
    throw ValueError("RandomErasing", "scale must be an interval in [0, 1], got ", o.scale.low, " to ",
                     o.scale.high);
  if (!(o.ratio.low > 0 && o.ratio.low <= o.ratio.high && std::isfinite(o.ratio.high)))
    throw ValueError("RandomErasing", "ratio must be an interval above 0, got ", o.ratio.low, " to ",
                     o.ratio.high);
  if (o.value.empty()) throw ValueError("RandomErasing", "needs a value to write");
}

// Draws area and log(height / width) uniformly, up to kTries times until the box is smaller than the image.
// If no box fits, the picture does not change.
void RandomErasing::apply(Picture& picture) const {
  picture.require_tensor("RandomErasing");
  constexpr int kTries = 10;
  RandomNumbers random;
  if (!random.bernoulli(options_.p)) return;
  const Tensor x = picture.channels_last_copy();
  const int64_t channels = x.size(0), height = x.size(1), width = x.size(2);
  const std::vector<double>& value = options_.value;
  if (!options_.random_value && value.size() != 1 && static_cast<int64_t>(value.size()) != channels)
    throw ValueError("RandomErasing", "expected one value or one for each of ", channels, " channels, got ",
                     value.size());
  for (int i = 0; i < kTries; ++i) {
    const double area =
        static_cast<double>(height * width) * random.uniform(options_.scale.low, options_.scale.high);
    const double ratio =
        std::exp(random.uniform(std::log(options_.ratio.low), std::log(options_.ratio.high)));
    const int64_t h = static_cast<int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const int64_t w = static_cast<int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (h >= height || w >= width) continue;
    const int64_t top = random.uniform_int(height - h + 1), left = random.uniform_int(width - w + 1);
    for (int64_t y = top; y < top + h; ++y) {
      float* pixel = x.ptr<float>() + (y * width + left) * channels;
      for (int64_t k = 0; k < w * channels; ++k) {
        const size_t channel = value.size() == 1 ? 0 : static_cast<size_t>(k % channels);
        pixel[k] = static_cast<float>(options_.random_value ? random.normal() : value[channel]);
      }
    }
    break;
  }
  picture.set(x);
}

}  // namespace gradus::data
