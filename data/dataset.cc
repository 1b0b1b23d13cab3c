// Collation of samples into batches, TensorDataset, Subset and ConcatDataset. All tensors are on the CPU;
// batches are row-major copies. The const functions have no state of their own, so several threads may call
// them concurrently.
#include "gradus/data/dataset.h"

#include <algorithm>
#include <cstring>

#include "gradus/data/sample_reading.h"

namespace gradus::data {
namespace internal {

void copy_elements(const Tensor& x, char* out) {
  const int64_t item = size_of(x.dtype());
  if (x.is_row_major()) {
    if (x.numel() > 0) std::memcpy(out, x.raw_ptr(), static_cast<size_t>(x.nbytes()));
    return;
  }
  const char* base = static_cast<const char*>(x.raw_ptr());
  Dims at = Dims::filled(x.dim(), 0);
  for (int64_t i = 0; i < x.numel(); ++i, out += item) {
    int64_t offset = 0;
    for (int d = 0; d < x.dim(); ++d) offset += at[d] * x.strides()[d];
    std::memcpy(out, base + offset * item, static_cast<size_t>(item));
    for (int d = x.dim() - 1; d >= 0 && ++at[d] == x.shape()[d]; --d) at[d] = 0;
  }
}

}  // namespace internal

namespace {

// Returns [rows, row...].
Shape with_rows(int64_t rows, const Shape& row) {
  Shape shape = row;
  shape.insert(0, rows);
  return shape;
}

std::string describe_or_none(const Tensor& x) { return x.defined() ? describe(x) : "none"; }

bool stackable(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || (a.shape() == b.shape() && a.dtype() == b.dtype());
}

// Stacks one field of N >= 1 stackable samples [...] into [N, ...]; undefined if the fields are undefined.
Tensor stack(const std::vector<Sample>& samples, Tensor Sample::*part) {
  const Tensor& first = samples[0].*part;
  if (!first.defined()) return {};
  Tensor out =
      empty(with_rows(static_cast<int64_t>(samples.size()), first.shape()), {.dtype = first.dtype()});
  char* p = static_cast<char*>(out.raw_ptr());
  for (const Sample& s : samples) {
    internal::copy_elements(s.*part, p);
    p += first.nbytes();
  }
  return out;
}

// Returns dataset.get(index). Errors: SampleError with the original exception nested.
Sample read_sample(const Dataset& dataset, int64_t index) {
  return internal::with_sample_error(dataset, index, [&] {
    Sample s = dataset.get(index);
    if (!s.input.defined()) throw ValueError(dataset.name(), "the sample has no input");
    return s;
  });
}

}  // namespace

void Dataset::check_index(int64_t index) const {
  if (index < 0 || index >= size())
    throw IndexError(name(), "index ", index, " is outside the data set of ", size(), " samples");
}

Batch internal::read_batch(
    const Dataset& dataset, std::span<const int64_t> indices,
    const std::function<Batch(const std::vector<Sample>&, std::span<const int64_t>)>& make) {
  std::vector<Sample> samples, replacements;
  std::vector<int64_t> order, skipped;
  {
    SampleGenerator generator;
    for (int64_t index : indices) {
      generator.begin_sample(index);
      Sample s = read_sample(dataset, index);
      (s.is_replacement ? skipped : order).push_back(index);
      (s.is_replacement ? replacements : samples).push_back(std::move(s));
    }
  }
  samples.insert(samples.end(), replacements.begin(), replacements.end());
  order.insert(order.end(), skipped.begin(), skipped.end());
  Batch batch = make(samples, order);
  batch.indices = std::move(order);
  batch.padding = batch.skipped = static_cast<int64_t>(skipped.size());
  return batch;
}

Batch Dataset::get_batch(std::span<const int64_t> indices) const {
  return internal::read_batch(*this, indices, [&](const auto& samples, std::span<const int64_t> order) {
    return collate(samples, order, name());
  });
}

Batch collate(const std::vector<Sample>& samples, std::span<const int64_t> indices,
              const std::string& dataset) {
  if (samples.empty() || samples.size() != indices.size())
    throw ValueError("collate", "needs one index per sample and at least one sample, got ", samples.size(),
                     " samples and ", indices.size(), " indices");
  for (size_t i = 0; i < samples.size(); ++i) {
    for (const auto& [name, part] : {std::pair("input", &Sample::input), {"target", &Sample::target}}) {
      const Tensor& x = samples[i].*part;
      if (x.defined() && x.device() != kCPU)
        throw SampleError(dataset, indices[i], concat("lies on ", x.device(), ", expected cpu"));
      if (i > 0 && !stackable(samples[i - 1].*part, x))
        throw SampleError(dataset, indices[i],
                          concat(name, ' ', describe_or_none(x), " cannot be stacked with ",
                                 describe_or_none(samples[i - 1].*part), " of sample ", indices[i - 1]));
    }
  }
  if (!samples[0].input.defined()) throw SampleError(dataset, indices[0], "the sample has no input");
  return {stack(samples, &Sample::input), stack(samples, &Sample::target), {indices.begin(), indices.end()}};
}

DatasetRef::DatasetRef(std::shared_ptr<const Dataset> shared) : p_(std::move(shared)) {
  if (!p_) throw ValueError("data", "a null data set was given");
}

TensorDataset::TensorDataset(Tensor inputs, Tensor targets, std::string name)
    : inputs_(std::move(inputs)), targets_(std::move(targets)), name_(std::move(name)) {
  if (inputs_.dim() == 0)
    throw ShapeError(name_, "inputs need a first dimension to count samples by, got a scalar");
  if (targets_.defined() && (targets_.dim() == 0 || targets_.size(0) != inputs_.size(0)))
    throw ShapeError(name_, "inputs and targets must have the same first dimension: inputs ",
                     describe(inputs_), ", targets ", describe(targets_));
  for (Tensor* t : {&inputs_, &targets_}) {
    if (!t->defined()) continue;
    if (t->device() != kCPU) throw DeviceError(name_, "expected tensors on cpu, got ", describe(*t));
    if (t->is_row_major()) continue;
    Tensor dense = empty(t->shape(), {.dtype = t->dtype()});
    internal::copy_elements(*t, static_cast<char*>(dense.raw_ptr()));
    *t = dense;
  }
}

namespace {

// Returns x[index] as a view.
Tensor row(const Tensor& x, int64_t index) {
  if (!x.defined()) return {};
  Shape shape = x.shape();
  shape.erase(0);
  return view_as_strided(x, shape, row_major_strides(shape), x.impl().offset + index * shape.product());
}

// Returns a copy of the rows x[indices]. x is row-major, and the indices are valid.
Tensor rows(const Tensor& x, std::span<const int64_t> indices) {
  if (!x.defined()) return {};
  Shape shape = x.shape();
  shape.erase(0);
  const size_t bytes = static_cast<size_t>(shape.product() * size_of(x.dtype()));
  Tensor out = empty(with_rows(static_cast<int64_t>(indices.size()), shape), {.dtype = x.dtype()});
  if (bytes == 0) return out;
  char* to = static_cast<char*>(out.raw_ptr());
  const char* from = static_cast<const char*>(x.raw_ptr());
  for (int64_t index : indices) {
    std::memcpy(to, from + static_cast<size_t>(index) * bytes, bytes);
    to += bytes;
  }
  return out;
}

}  // namespace

Sample TensorDataset::get(int64_t index) const {
  check_index(index);
  return {row(inputs_, index), row(targets_, index)};
}

Batch TensorDataset::get_batch(std::span<const int64_t> indices) const {
  for (int64_t index : indices) check_index(index);
  return {rows(inputs_, indices), rows(targets_, indices), {indices.begin(), indices.end()}};
}

Subset::Subset(DatasetArg dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  for (size_t i = 0; i < indices_.size(); ++i)
    if (indices_[i] < 0 || indices_[i] >= dataset_->size())
      throw IndexError("Subset", "indices[", i, "] is ", indices_[i], ", outside ", dataset_->name(), " of ",
                       dataset_->size(), " samples");
}

Subset Subset::first(DatasetArg dataset, int64_t count) {
  if (count < 0) throw ValueError("Subset", "count must not be negative, got ", count);
  std::vector<int64_t> indices(static_cast<size_t>(std::min(count, dataset->size())));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  return Subset(std::move(dataset), std::move(indices));
}

namespace {

// `to` is a permutation of `from`. Returns `names`, whose elements correspond to `from`, in the order of
// `to`.
std::vector<int64_t> in_order_of(const std::vector<int64_t>& to, std::vector<int64_t> from,
                                 const std::vector<int64_t>& names) {
  constexpr int64_t kTaken = -1;
  std::vector<int64_t> ordered;
  for (int64_t index : to) {
    const auto at = std::find(from.begin(), from.end(), index);
    ordered.push_back(names[static_cast<size_t>(at - from.begin())]);
    *at = kTaken;
  }
  return ordered;
}

}  // namespace

Sample Subset::get(int64_t index) const {
  check_index(index);
  return read_sample(*dataset_, indices_[static_cast<size_t>(index)]);
}

// Reads the underlying indices, then replaces the batch's indices by those of the subset. A batch with
// skipped samples has them in another order than they were requested.
Batch Subset::get_batch(std::span<const int64_t> indices) const {
  std::vector<int64_t> inner;
  inner.reserve(indices.size());
  for (int64_t index : indices) {
    check_index(index);
    inner.push_back(indices_[static_cast<size_t>(index)]);
  }
  Batch batch = dataset_->get_batch(inner);
  std::vector<int64_t> outer(indices.begin(), indices.end());
  if (batch.skipped > 0) outer = in_order_of(batch.indices, inner, outer);
  batch.indices = std::move(outer);
  return batch;
}

ConcatDataset::ConcatDataset(const std::vector<DatasetArg>& parts) : parts_(parts.begin(), parts.end()) {
  if (parts_.empty()) throw ValueError("ConcatDataset", "needs at least one data set");
  int64_t end = 0;
  for (const DatasetRef& part : parts_) ends_.push_back(end += part->size());
}

std::string ConcatDataset::name() const {
  std::string text;
  for (const DatasetRef& part : parts_) text += (text.empty() ? "" : "+") + part->name();
  return text;
}

Sample ConcatDataset::get(int64_t index) const {
  check_index(index);
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const size_t part = static_cast<size_t>(end - ends_.begin());
  return read_sample(*parts_[part], index - (part == 0 ? 0 : ends_[part - 1]));
}

}  // namespace gradus::data
