// ImageDataset: reads, transforms and batches labeled images. Images are written channels-last into a batch
// f32[N, C, H, W] whose shape the first image determines; results of other dtypes or dims are collated. An
// image whose FileError may_replace() accepts is replaced by the next readable image in the data set, at the end of
// the batch. get and get_batch may run on several threads; errors of get_batch are SampleErrors that name the
// sample.
#include "gradus/data/sets/image_dataset.h"

#include <algorithm>
#include <vector>

#include "gradus/data/sample_reading.h"

namespace gradus::data {
namespace {

// Returns whether the transform's result is f32[C, H, W].
bool is_image_tensor(const Picture& p) { return p.dtype() == DType::kF32 && p.shape().size() == 3; }

// Returns the transformed image, which is a tensor.
Picture transformed(const ImageDataset& set, int64_t index) {
  Picture picture(set.image(index));
  set.transform().apply(picture);
  if (picture.is_image())
    throw StateError(set.name(), "the transform leaves an image, expected a tensor: ToTensor is missing");
  return picture;
}

}  // namespace

bool ImageDataset::may_replace(int64_t, const FileError&) const { return false; }

// Calls read(i) for up to 100 samples after sample `index` (cyclically) until one is readable. `cause`: the
// error of sample `index`.
// Errors: FileError if none is readable; the errors that may_replace() does not accept.
template <class F>
void ImageDataset::read_replacement(int64_t index, const std::string& cause, const F& read) const {
  constexpr int64_t kTries = 100;
  const int64_t tries = std::min(kTries, size() - 1);
  for (int64_t k = 1; k <= tries; ++k) {
    const int64_t i = (index + k) % size();
    try {
      return read(i);
    } catch (const FileError& e) {
      if (!may_replace(i, e)) throw;
    }
  }
  throw FileError(name(), "cannot skip a sample: neither it nor the ", tries,
                  " after it can be read: ", cause);
}

Sample ImageDataset::get(int64_t index) const {
  Sample sample;
  const auto read = [&](int64_t i) {
    sample.input = transformed(*this, i).tensor();
    sample.target = scalar(label(i), {.dtype = DType::kI64});
  };
  try {
    read(index);
  } catch (const FileError& e) {
    if (!may_replace(index, e)) throw;
    read_replacement(index, e.what(), read);
    sample.is_replacement = true;
  }
  return sample;
}

// Fills a batch, sample by sample.
struct ImageDataset::BatchWriter {
  const ImageDataset& set;
  Batch batch;
  std::vector<Sample> others = {};  // the samples instead of batch.input, if the first is not f32[C,H,W]
  int64_t written = 0;
  int64_t first = 0;  // data set index of the first sample written

  void write(int64_t index) {
    Picture picture = transformed(set, index);
    const int64_t target = set.label(index), size = batch.target.numel();
    if (written == 0) first = index;
    if (!others.empty() || (written == 0 && !is_image_tensor(picture))) {
      others.push_back({picture.tensor(), scalar(target, {.dtype = DType::kI64})});
    } else {
      const Shape shape = picture.shape();
      if (written == 0)
        batch.input = empty_channels_last({size, shape[0], shape[1], shape[2]}, {DType::kF32});
      const Shape& all = batch.input.shape();
      if (!is_image_tensor(picture) || shape != Shape{all[1], all[2], all[3]})
        throw ShapeError(set.name(), "the transform gives ", name_of(picture.dtype()), shape, ", but f32",
                         Shape{all[1], all[2], all[3]}, " of sample ", first);
      picture.write_channels_last(batch.input.ptr<float>() + written * shape.product());
    }
    batch.target.ptr<int64_t>()[written++] = target;
  }
};

Batch ImageDataset::get_batch(std::span<const int64_t> indices) const {
  const int64_t n = static_cast<int64_t>(indices.size());
  if (n == 0) return Dataset::get_batch(indices);
  internal::SampleGenerator generator;
  BatchWriter writer{*this, {{}, empty({n}, {.dtype = DType::kI64})}};
  Batch& batch = writer.batch;
  std::vector<std::pair<int64_t, std::string>> skipped;  // index and reason
  for (const int64_t index : indices) {
    generator.begin_sample(index);
    internal::with_sample_error(*this, index, [&] {
      try {
        writer.write(index);
        batch.indices.push_back(index);
      } catch (const FileError& e) {
        if (!may_replace(index, e)) throw;
        skipped.emplace_back(index, e.what());
      }
    });
  }
  for (const auto& [index, cause] : skipped) {
    generator.begin_sample(index);
    internal::with_sample_error(*this, index, [&, index = index, &cause = cause] {
      read_replacement(index, cause, [&](int64_t i) { writer.write(i); });
    });
    batch.indices.push_back(index);
  }
  if (!writer.others.empty()) {
    const std::vector<int64_t> order = std::move(batch.indices);
    batch = collate(writer.others, order, name());
  }
  batch.padding = batch.skipped = static_cast<int64_t>(skipped.size());
  return std::move(writer.batch);
}

}  // namespace gradus::data
