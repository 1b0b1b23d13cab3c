// Implementation of preload: a DataLoader reads the samples in order into shared memory: first all inputs, then all
// targets.
#include "gradus/data/sets/preload.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "gradus/data/dataloader.h"
#include "gradus/data/sample_reading.h"
#include "gradus/data/sets/images_in_memory.h"
#include "gradus/tensor/base/checked.h"

namespace gradus::data {
namespace {

// Returns x[i] as a view.
Tensor row(const Tensor& x, int64_t i) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape.erase(0), strides.erase(0);
  return view_as_strided(x, shape, strides, x.impl().offset + i * x.strides()[0]);
}

// Part of the samples: their inputs, or their targets.
struct Part {
  Part(Tensor Batch::*part, const Batch& of_one, int64_t n) : which(part) {
    const Tensor& one = of_one.*which;
    if (!one.defined()) return;
    bytes_per_sample = one.nbytes();
    shape = one.shape();
    shape[0] = n;
    dtype = one.dtype();
    bytes = Checked("preload", n) * bytes_per_sample;
  }
  void copy(const Batch& batch, uint8_t* to, const Dataset& set) const {
    const Tensor& x = batch.*which;
    Shape expected = shape;
    if (!expected.empty()) expected[0] = batch.size();
    if (x.defined() ? x.shape() != expected || x.dtype() != dtype : !shape.empty())
      throw SampleError(set.name(), batch.indices[0],
                        concat("it or one of the ", batch.size() - 1,
                               " after it has another shape or dtype than sample 0"));
    if (!x.defined()) return;
    for (size_t i = 0; i < batch.indices.size(); ++i)
      internal::copy_elements(row(x, int64_t(i)),
                              reinterpret_cast<char*>(to) + batch.indices[i] * bytes_per_sample);
  }
  Tensor tensor(const Tensor& memory, int64_t offset) const {
    if (shape.empty()) return {};
    return from_blob(static_cast<uint8_t*>(memory.raw_ptr()) + offset, shape, {.dtype = dtype}, [memory] {});
  }

  Tensor Batch::*which;
  int64_t bytes_per_sample = 0, bytes = 0;
  Shape shape = {};  // of all samples; empty: the data set has no such part
  DType dtype = DType::kF32;
};

std::string fingerprint(const Batch& batch) {
  std::string text;
  for (const Tensor& x : {batch.input, batch.target}) {
    if (!x.defined()) continue;
    std::string bytes(size_t(x.nbytes()), '\0');
    internal::copy_elements(x, bytes.data());
    text += concat(':', name_of(x.dtype()), x.shape(), ':', std::hash<std::string>()(bytes));
  }
  return text;
}

}  // namespace

TensorDataset preload(DatasetArg dataset, const PreloadOptions& options) {
  constexpr int64_t kAlignment = 64, kMaxBatch = 16;
  const int64_t n = dataset->size();
  if (n < 1) throw ValueError("preload", dataset->name(), " has no samples");
  const auto loader = [&](const DatasetRef& set, int workers, int64_t batch_size) {
    return DataLoader(
        set, {.batch_size = batch_size, .num_workers = workers, .seed = options.seed, .world_size = 1});
  };
  std::string key = concat("preload:", options.key, ':', dataset->name(), ':', n, ':', options.seed);
  std::optional<Part> inputs, targets;
  for (const int64_t index : {int64_t{0}, n - 1}) {
    DataLoader one = loader(Subset(dataset, {index}), 0, 1);
    const auto batch = one.begin();
    key += fingerprint(*batch);
    if (!inputs) inputs.emplace(&Batch::input, *batch, n), targets.emplace(&Batch::target, *batch, n);
  }
  const int64_t begin_of_targets =
      (Checked("preload", inputs->bytes) + (kAlignment - 1)) / kAlignment * kAlignment;
  const int64_t bytes = Checked("preload", begin_of_targets) + targets->bytes;
  const HostTensor memory = host_tensor(key, bytes, [&](uint8_t* out) {
    DataLoader all = loader(dataset, options.num_workers, kMaxBatch);
    for (const Batch& batch : all) {
      inputs->copy(batch, out, *dataset);
      targets->copy(batch, out + begin_of_targets, *dataset);
    }
  });
  return TensorDataset(inputs->tensor(memory.bytes, 0), targets->tensor(memory.bytes, begin_of_targets),
                       dataset->name());
}

}  // namespace gradus::data
