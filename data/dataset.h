// Dataset: a finite collection of samples that are read by index; Subset, ConcatDataset and TensorDataset.
//
//   class Squares : public data::Dataset {
//    public:
//     std::string name() const override { return "Squares"; }
//     int64_t size() const override { return 100; }
//     data::Sample get(int64_t i) const override { return {scalar(i), scalar(i * i)}; }
//   };
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/tensor.h"

namespace gradus::data {

struct Sample {
  Tensor input;
  Tensor target = {};           // undefined when the data set has no targets
  bool is_replacement = false;  // true: another sample, returned because the requested one cannot be read
};

// Samples stacked along a new first dimension.
struct Batch {
  Tensor input;
  Tensor target = {};                 // undefined when the data set has no targets
  std::vector<int64_t> indices = {};  // the samples' indices in their data set
  // Number of samples of this step on all ranks together, including repeated samples; 0 if not set by a
  // DataLoader. Ranks may have unequal numbers of samples. The mean loss over all samples is the mean over
  // the ranks of
  //   sum of this rank's losses * ranks / global_size
  int64_t global_size = 0;
  // The last `padding` samples are repeated samples (see Uneven in dataloader.h) or replacements for
  // unreadable samples. An evaluation counts the first size() - padding samples.
  int64_t padding = 0;
  // Number of unreadable samples. Their replacements are at the end of the batch; `indices` has the indices
  // of the unreadable samples.
  int64_t skipped = 0;

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

// Reading a sample failed. The original exception is nested (std::rethrow_if_nested).
struct SampleError : Error {
  SampleError(const std::string& dataset_, int64_t index_, const std::string& cause)
      : Error(dataset_, "sample ", index_, ": ", cause), dataset(dataset_), index(index_) {}
  std::string dataset;
  int64_t index;
};

// Base class of data sets. Several threads call the const functions concurrently.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // Names the data set in errors and logs.
  virtual std::string name() const { return "dataset"; }
  virtual int64_t size() const = 0;
  // Reads one sample. Callers install a separate generator per sample, so that random augmentation does not
  // depend on the worker.
  // Errors: IndexError outside [0, size()).
  virtual Sample get(int64_t index) const = 0;
  // Reads several samples as one batch, in the order of `indices` except that replacements for unreadable
  // samples come last. The default calls `get` and `collate`. Data sets in memory fill the batch directly.
  // Errors: SampleError naming the sample; in overrides, also IndexError outside [0, size()).
  virtual Batch get_batch(std::span<const int64_t> indices) const;

 protected:
  Dataset() = default;
  Dataset(const Dataset&) = default;
  Dataset(Dataset&&) = default;
  Dataset& operator=(const Dataset&) = default;
  Dataset& operator=(Dataset&&) = default;

  // Errors: IndexError naming the data set.
  void check_index(int64_t index) const;
};

// Stacks samples, which must have equal shapes and dtypes and be on the CPU. indices[i] is the index of
// samples[i]; `dataset` is the data set's name in errors.
// Shapes: N inputs [...] -> [N,...]; the same for targets.
// Errors: SampleError naming the first sample that differs from the previous one, is not on the CPU or has no
// input; ValueError for no samples, or another number of indices.
Batch collate(const std::vector<Sample>& samples, std::span<const int64_t> indices,
              const std::string& dataset);

namespace internal {

// Reads samples one by one, each with a separate generator, and calls `make` for a batch of them; sets its
// indices, padding and skipped. Replacements (Sample::is_replacement), and their indices, come last.
// Errors: SampleError naming the sample; those of `make`.
Batch read_batch(const Dataset& dataset, std::span<const int64_t> indices,
                 const std::function<Batch(const std::vector<Sample>&, std::span<const int64_t>)>& make);

}  // namespace internal

// A reference to a data set. It owns an rvalue or a shared_ptr; `return set;` moves a local set into it. It
// borrows an lvalue only by explicit conversion, DatasetRef(set); the set must then outlive the reference.
class DatasetRef {
 public:
  explicit DatasetRef(const Dataset& borrowed) : p_(std::shared_ptr<const Dataset>(), &borrowed) {}
  DatasetRef(std::shared_ptr<const Dataset> shared);  // Errors: ValueError for null
  template <class D>
    requires(!std::is_lvalue_reference_v<D> && std::derived_from<std::remove_cvref_t<D>, Dataset>)
  DatasetRef(D&& owned) : p_(std::make_shared<std::remove_cvref_t<D>>(std::forward<D>(owned))) {}

  const Dataset& operator*() const { return *p_; }
  const Dataset* operator->() const { return p_.get(); }

 private:
  std::shared_ptr<const Dataset> p_;
};

// The type of data set parameters. It borrows any lvalue, so the set must outlive the loader or subset. A
// function that returns a subset of a local set must pass std::move(set).
class DatasetArg : public DatasetRef {
 public:
  using DatasetRef::DatasetRef;
  DatasetArg(const Dataset& borrowed) : DatasetRef(borrowed) {}
  DatasetArg(DatasetRef set) : DatasetRef(std::move(set)) {}
};

// Rows of tensors: sample i is (inputs[i], targets[i]).
class TensorDataset : public Dataset {
 public:
  // Shares row-major tensors, copies others. `get` returns views of them, `get_batch` copies.
  // Errors: ShapeError if the first dimensions differ or a tensor has no dims; DeviceError unless on the CPU.
  explicit TensorDataset(Tensor inputs, Tensor targets = {}, std::string name = "TensorDataset");

  std::string name() const override { return name_; }
  int64_t size() const override { return inputs_.size(0); }
  Sample get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  Tensor inputs_, targets_;
  std::string name_;
};

// Some samples of a data set, in a given order. Errors name the sample by its index in the underlying set.
class Subset : public Dataset {
 public:
  // Errors: IndexError for an index outside the data set.
  Subset(DatasetArg dataset, std::vector<int64_t> indices);
  // Returns the first min(count, dataset.size()) samples. Errors: ValueError for a negative count.
  static Subset first(DatasetArg dataset, int64_t count);

  std::string name() const override { return dataset_->name(); }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Sample get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  DatasetRef dataset_;
  std::vector<int64_t> indices_;
};

// The concatenation of several data sets.
class ConcatDataset : public Dataset {
 public:
  explicit ConcatDataset(const std::vector<DatasetArg>& parts);  // Errors: ValueError for no parts

  std::string name() const override;
  int64_t size() const override { return ends_.back(); }
  Sample get(int64_t index) const override;

 private:
  std::vector<DatasetRef> parts_;
  std::vector<int64_t> ends_;
};

}  // namespace gradus::data
