// Dataset: a finite collection of samples that can be read by index, and the ways to combine them.
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
  Tensor target = {};      // undefined when the data set has no targets
  bool stands_in = false;  // replaces the requested sample, which cannot be read
};

// Samples stacked along a new first dimension.
struct Batch {
  Tensor input;
  Tensor target = {};
  std::vector<int64_t> indices = {};  // the samples' indices in their data set
  // The number of samples of this step on all ranks together, repeated samples included. Ranks may have
  // unequal numbers of samples. The mean loss over all samples is the mean over the ranks of
  //   sum of this rank's losses * ranks / global_size
  int64_t global_size = 0;
  // The last `padding` samples are repeated (see Uneven), or stand in for samples that cannot be read. An
  // evaluation counts size() - padding samples.
  int64_t padding = 0;
  // The number of samples that could not be read. Other samples stand in for them, at the end of the batch.
  // `indices` has the indices that were asked for.
  int64_t skipped = 0;

  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

// Reading a sample failed. The original exception is nested (std::rethrow_if_nested gives it).
struct SampleError : Error {
  SampleError(const std::string& dataset_, int64_t index_, const std::string& cause)
      : Error(dataset_, "sample ", index_, ": ", cause), dataset(dataset_), index(index_) {}
  std::string dataset;
  int64_t index;
};

// All reading functions are const and are called from several threads at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  // Names the data set in errors and logs.
  virtual std::string name() const { return "dataset"; }
  virtual int64_t size() const = 0;
  // Reads one sample. Random ops draw from a generator of that sample's own, so augmentation does not depend
  // on the worker that reads it.
  // Errors: IndexError outside [0, size()).
  virtual Sample get(int64_t index) const = 0;
  // Reads several samples as one batch. The default calls `get` and `collate`. Data sets in memory fill
  // the batch directly.
  // Errors: SampleError naming the sample.
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

// Stacks samples. All must agree in shape and dtype, and lie on the CPU.
// Shapes: inputs [...] -> [N,...], targets likewise.
// Errors: SampleError naming the first sample that differs from the one before it, or that lies
// on another device.
Batch collate(const std::vector<Sample>& samples, std::span<const int64_t> indices,
              const std::string& dataset);

// Reads samples one by one, each with a generator of its own.
// Errors: SampleError naming the sample.
std::vector<Sample> get_samples(const Dataset& dataset, std::span<const int64_t> indices);

// Moves the samples that stand in for others, and their indices, to the end. Returns their number.
int64_t move_stand_ins_last(std::vector<Sample>& samples, std::vector<int64_t>& indices);

// Holds a data set. It owns an rvalue or a shared_ptr, and `return set;` moves a local set into it. It
// borrows an lvalue only where that is written out, as DatasetRef(set). The set must then outlive it.
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

// A parameter that takes a data set. It borrows any lvalue, so the set must outlive the loader or the subset
// that is made of it. A function that returns a subset of a local set passes std::move(set).
class DatasetArg : public DatasetRef {
 public:
  using DatasetRef::DatasetRef;
  DatasetArg(const Dataset& borrowed) : DatasetRef(borrowed) {}
  DatasetArg(DatasetRef set) : DatasetRef(std::move(set)) {}
};

// Rows of tensors: sample i is (inputs[i], targets[i]).
class TensorDataset : public Dataset {
 public:
  // Errors: ShapeError when the first dimensions differ or there is none.
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
  // The first `count` samples (all, when there are fewer).
  static Subset first(DatasetArg dataset, int64_t count);

  std::string name() const override { return dataset_->name(); }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Sample get(int64_t index) const override;
  Batch get_batch(std::span<const int64_t> indices) const override;

 private:
  DatasetRef dataset_;
  std::vector<int64_t> indices_;
};

// The samples of several data sets, one set after the other.
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
