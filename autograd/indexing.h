// Indexing as in NumPy and PyTorch:
//
//   Tensor row = x[0];                           // also x[{0}]
//   Tensor part = x[{Ellipsis, Slice(0, 3)}];    // a view
//   Tensor column = x[{None, Slice(), -1}];      // None inserts a dim of size 1
//   Tensor picked = x[{rows, columns}];          // index tensors broadcast together; a copy
//   x[{1, Slice(0, 6, 2)}] = v;
//   x[mask] = 0;
//   x[0][1] += 2;
//
// The result of x[...] keeps x's storage alive, and may outlive the handle x.
//
// A Tensor is a reference-counted handle. An assignment x[...] = v writes into x's storage, unless an open
// Recording (gradient tape) follows x or v, that is, would record an op on the tensor. In that case the
// assignment computes a new tensor, with gradients to x and v, and makes the handle x refer to the new
// tensor. Other handles keep the old tensor. A tensor passed to GradManager::attach, or an nn::Parameter, is
// never replaced in this way: write into such a tensor under no_record(), or into a clone.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Stands for as many whole dims as the other indices leave over. At most one per index list.
struct EllipsisType {};
inline constexpr EllipsisType Ellipsis;

// Selects the elements start, start + step, ... before stop of a dim. Negative bounds count from the end;
// bounds beyond the ends are clamped. Slice() is the whole dim.
// Errors: ValueError for a step below 1.
struct Slice {
  Slice() = default;
  Slice(std::optional<int64_t> start_, std::optional<int64_t> stop_ = std::nullopt, int64_t step_ = 1)
      : start(start_.value_or(0)), stop(stop_.value_or(kEnd)), step(step_) {}
  bool is_whole() const { return start == 0 && stop == kEnd && step == 1; }

  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  int64_t start = 0, stop = kEnd, step = 1;
};

// One index: a number (a negative one counts from the end), a Slice, None, Ellipsis, an i64 or i32 tensor of
// indices, or a bool mask over one or more dims. Dims without an index are whole.
class Index {
 public:
  enum class Kind : uint8_t { kNumber, kSlice, kNone, kEllipsis, kTensor };

  template <std::integral I>
    requires(!std::same_as<I, bool>)
  Index(I at) : kind_(Kind::kNumber), slice_(static_cast<int64_t>(at)) {}
  Index(const Slice& slice) : kind_(Kind::kSlice), slice_(slice) {}
  Index(NoneType) : kind_(Kind::kNone) {}
  Index(EllipsisType) : kind_(Kind::kEllipsis) {}
  Index(const Tensor& indices_or_mask) : kind_(Kind::kTensor), tensor_(indices_or_mask) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  int64_t number() const { return slice_.start; }
  const Slice& slice() const { return slice_; }
  const Tensor& tensor() const { return tensor_; }

 private:
  Kind kind_;
  Slice slice_;  // a number is stored as the slice's start
  Tensor tensor_;
};

// The result of x[...]: converts to a Tensor, and can be assigned to. An Indexed that is stored in a
// variable, `auto part = x[0];`, can be read. Only the temporary can be assigned to: `x[0] = v;`.
class Indexed {
 public:
  Indexed(const Tensor& x, Tensor* handle, std::vector<Index> index);
  ~Indexed();
  Indexed(const Indexed&) = delete;

  // Returns the indexed elements: a view, or a copy if an index is a tensor.
  // The common shape of several index tensors replaces the indexed dims, in their position if they are
  // adjacent, else in front, as in NumPy.
  // A mask makes the call wait for the device.
  // Errors: IndexError naming index, dim and size; DTypeError for another dtype of an index tensor,
  // DeviceError for another device; ShapeError unless index tensors broadcast; ValueError for a step below 1.
  // Grad: zeros, to which dy is added at the indexed elements, once per occurrence of an element.
  Tensor get() const;
  operator Tensor() const { return get(); }
  template <class T> T item() const { return get().item<T>(); }
  template <DTypeElement T> std::vector<T> to_vector() const { return get().to_vector<T>(); }
  Shape shape() const { return get().shape(); }
  int64_t size(int64_t dim) const { return get().size(dim); }
  int dim() const { return get().dim(); }
  int64_t numel() const { return get().numel(); }
  DType dtype() const { return x_.dtype(); }
  Device device() const { return x_.device(); }

  // Indexes the result again: x[0][1]. An assignment to x[0][1] changes x.
  Indexed operator[](std::initializer_list<Index> index) &&;
  Indexed operator[](const Index& index) &&;
  // Index get() of an Indexed that is stored in a variable. An assignment to the result changes x if get() is
  // a view, and throws StateError while a recording follows x or v.
  Indexed operator[](std::initializer_list<Index> index) const&;
  Indexed operator[](const Index& index) const&;

  // Writes v, converted to x's dtype and broadcast to the shape of the indexed elements. The last of repeated
  // indices wins. x[...] op= v is x[...] = x[...] op v, so repeated indices do not accumulate.
  // Errors: those of get(); ShapeError when v does not broadcast, or elements of x share memory; DeviceError
  // for tensors on different devices; ValueError for a number outside the range of an integer dtype;
  // StateError when a recording follows x or v, and x is attached, an nn::Parameter, a const handle or a
  // temporary.
  // Grad: to x, dy with zeros at the indexed elements; to v, dy at the indexed elements.
  void operator=(const Tensor& v) &&;
  void operator=(Number v) &&;
  void operator=(const Indexed& v) && { std::move(*this) = v.get(); }
  void operator+=(const Tensor& v) &&;
  void operator-=(const Tensor& v) &&;
  void operator*=(const Tensor& v) &&;
  void operator/=(const Tensor& v) &&;
  void operator+=(Number v) &&;
  void operator-=(Number v) &&;
  void operator*=(Number v) &&;
  void operator/=(Number v) &&;

 private:
  Indexed(std::shared_ptr<Indexed> outer, std::vector<Index> index);
  bool is_copy() const;          // whether this Indexed, or an outer one, has a tensor as index
  void assign(const Tensor& v);  // assigns v to outer_ if there is one, else to *handle_

  Tensor x_;        // a handle of its own: the Indexed may outlive x
  Tensor* handle_;  // the handle x, valid in the expression x[...] only; null: x is const or a temporary
  std::vector<Index> index_;
  std::shared_ptr<Indexed> outer_;  // for x[0][1]: x[0]; null for x[0]
};

}  // namespace gradus
