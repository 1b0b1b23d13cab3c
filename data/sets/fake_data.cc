// FakeData: pixels and labels are numbers of the counter-based generator Philox, with the seed as its key. So an
// image and its label depend only on (seed, index), and any thread can produce them in any order.
#include "gradus/data/sets/fake_data.h"

#include <algorithm>
#include <cstring>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace {

// Streams of Philox blocks of 4 u32. Label `index` is made of block `index` of kLabelStream. The bytes of
// image `index` are the blocks of stream kFirstPixelStream + index.
constexpr uint64_t kLabelStream = 0, kFirstPixelStream = 1;

}  // namespace

FakeData::FakeData(FakeDataOptions options) : ImageDataset(options.transform), options_(std::move(options)) {
  const FakeDataOptions& o = options_;
  if (o.size < 1 || o.classes < 1)
    throw ValueError("FakeData", "size and classes must be at least 1, got ", o.size, " and ", o.classes);
  Image(o.image_size.h, o.image_size.w, o.channels);  // the constructor checks the sizes
}

Image FakeData::image(int64_t index) const {
  check_index(index);
  Image image(options_.image_size.h, options_.image_size.w, options_.channels);
  uint8_t* out = image.mutable_data();
  const uint64_t stream = kFirstPixelStream + static_cast<uint64_t>(index);
  for (int64_t i = 0; i < image.bytes(); i += 16) {
    const auto words = philox(options_.seed, stream, static_cast<uint64_t>(i / 16));
    std::memcpy(out + i, words.data(), static_cast<size_t>(std::min<int64_t>(16, image.bytes() - i)));
  }
  return image;
}

int64_t FakeData::label(int64_t index) const {
  check_index(index);
  const auto words = philox(options_.seed, kLabelStream, static_cast<uint64_t>(index));
  // Maps 32 random bits to [0, classes).
  return static_cast<int64_t>((uint64_t(words[0]) * static_cast<uint64_t>(options_.classes)) >> 32);
}

}  // namespace gradus::data
