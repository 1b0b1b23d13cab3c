// Tensor: a reference-counted handle to a strided n-dimensional array. Copies of a Tensor share the elements.
//
// Shapes of images are logical NCHW for any memory layout; strides describe the layout. A default-constructed
// Tensor is undefined, which means "none". Ops are free functions: the differentiable ones for users are in
// gradus/autograd/ops/ops.h, the raw ones without autograd in gradus/tensor/ops/. Thread-safe as
// std::shared_ptr: two threads must not use one handle at the same time if one of them assigns to it.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/none.h"
#include "gradus/tensor/base/number.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/base/shape.h"
#include "gradus/tensor/storage.h"

namespace gradus {

template <class Signature> class KernelSlot;  // an op's kernels by device: gradus/tensor/kernel.h
class Index;                                  // one coordinate of x[{...}]: gradus/autograd/indexing.h
class Indexed;  // the proxy that x[{...}] returns, which converts to a Tensor and can be assigned to

// The autograd state of a tensor: a leaf, or the node (recorded op) that computed it. Defined by subclasses
// in autograd/.
class AutogradSlot : public Counted {
 public:
  // Returns whether this is a leaf (an attached tensor) rather than the node of an op.
  bool is_leaf() const { return is_leaf_; }
  // Returns whether an open recording of this thread records ops on the tensor.
  virtual bool is_recorded() const = 0;
  // Called when the TensorImpl that owns this slot is destroyed.
  virtual void on_owner_destroyed() {}

 protected:
  explicit AutogradSlot(bool is_leaf) : is_leaf_(is_leaf) {}

 private:
  bool is_leaf_;
};

// The array that Tensor handles refer to: a strided view into a Storage. Views of one array share the Storage.
class TensorImpl final : public Counted {
 public:
  TensorImpl(Ref<Storage> storage, int64_t offset, const Shape& shape, const Strides& strides, DType dtype);
  ~TensorImpl() override;

  Ref<Storage> storage;
  int64_t offset;  // elements from the start of the storage
  Shape shape;
  Strides strides;  // elements; strides of size-1 dims are normalized
  int64_t numel;
  DType dtype;
  bool row_major;           // contiguous in row-major order
  uint32_t slot_index = 0;  // index among the outputs of the slot's node
  Ref<AutogradSlot> slot;   // null: a constant
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(NoneType) {}  // undefined, for an omitted argument

  bool defined() const { return bool(impl_); }
  explicit operator bool() const { return defined(); }

  // On a temporary, shape() returns a copy, so `for (int64_t n : f(x).shape())` is safe.
  const Shape& shape() const& { return impl().shape; }
  Shape shape() && { return impl().shape; }
  int64_t size(int64_t dim) const;  // a negative dim counts from the last. Errors: IndexError
  int dim() const { return impl().shape.size(); }
  int64_t numel() const { return impl().numel; }
  const Strides& strides() const& { return impl().strides; }
  Strides strides() && { return impl().strides; }
  int64_t stride(int64_t dim) const;  // in elements; dim as for size
  DType dtype() const { return impl().dtype; }
  Device device() const { return impl().storage->device(); }
  int64_t nbytes() const { return numel() * size_of(dtype()); }

  // Returns whether the tensor is contiguous in row-major order.
  bool is_row_major() const { return impl().row_major; }
  // Returns whether a tensor of 3 to 5 dims is contiguous with channels (dim 1) innermost. False for a tensor
  // that is also row-major, as with one channel.
  bool is_channels_last() const;
  // Returns whether the tensor is contiguous (no gaps, no overlaps) in some order of its dims.
  bool is_dense() const;

  // Return a pointer to the elements of a row-major tensor, after the device has computed them. mutable_data
  // increments the storage's version counter, by which autograd detects in-place writes. The pointer is valid
  // as long as the storage.
  // Errors: DTypeError unless the dtype is T's; ShapeError unless row-major; DeviceError unless in host memory.
  template <class T> const T* data() const { return static_cast<const T*>(host_data(dtype_v<T>)); }
  template <class T> T* mutable_data() {
    T* p = static_cast<T*>(const_cast<void*>(host_data(dtype_v<T>)));
    storage()->bump_version();
    return p;
  }

  // Returns the only element, converted to T. Blocks until the device has computed it.
  // Errors: ShapeError unless numel() is 1; DeviceError on meta.
  template <class T> T item() const {
    return dtype() == DType::kI64 ? static_cast<T>(item_i64()) : static_cast<T>(item_f64());
  }

  // Returns the elements in row-major order, converted to T. Blocks until the device has computed them.
  // Errors: DeviceError on meta.
  template <DTypeElement T> std::vector<T> to_vector() const;

  // Indexing for reading and assignment: x[{1, Slice(0, 3)}], x[0], x[mask]. Defined in
  // gradus/autograd/indexing.h.
  Indexed operator[](std::initializer_list<Index> index) &;
  Indexed operator[](std::initializer_list<Index> index) const&;
  Indexed operator[](const Index& index) &;
  Indexed operator[](const Index& index) const&;

  // Returns a tensor that shares the elements and has no autograd history.
  Tensor detach() const;

  // grad() returns the accumulated gradient, undefined if there is none. Only attached tensors have a
  // gradient. set_grad replaces it; an undefined `grad` removes it. Both are defined in autograd/.
  // Errors: ShapeError, DTypeError, DeviceError unless `grad` has the tensor's shape, dtype and device;
  // ValueError if it is the tensor itself (a reference cycle).
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;

  // --- for the framework itself ---
  // Errors: StateError when undefined.
  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      throw_undefined();
    return *impl_;
  }
  const Ref<TensorImpl>& ref() const { return impl_; }
  const Ref<Storage>& storage() const { return impl().storage; }
  // Returns the address of the first element, without checks and without waiting for the device.
  template <class T> T* ptr() const {
    static_assert(
        !std::is_same_v<std::remove_cv_t<T>, char> && !std::is_same_v<std::remove_cv_t<T>, std::byte>,
        "ptr() counts elements; bytes are at raw_ptr()");
    return static_cast<T*>(impl_->storage->data()) + impl_->offset;
  }
  void* raw_ptr() const { return static_cast<char*>(storage()->data()) + impl_->offset * size_of(dtype()); }
  // Returns whether no other tensor shares the storage, so that the buffer may be reused for a result.
  bool is_sole_owner() const {
    return impl_ && impl_->use_count() == 1 && impl_->storage->use_count() == 1 &&
           !impl_->storage->is_external();
  }
  bool is_same(const Tensor& o) const { return impl_.get() == o.impl_.get(); }

 private:
  const void* host_data(DType expected) const;
  double item_f64() const;
  int64_t item_i64() const;
  [[noreturn, gnu::cold]] static void throw_undefined();
  Ref<TensorImpl> impl_;
};

struct TensorOptions {
  DType dtype = get_default_dtype();  // f32 unless changed by set_default_dtype
  Device device = kCPU;
};

// Returns a row-major tensor with unspecified contents. Errors of this and the next four: ShapeError for an
// invalid shape or strides; OutOfMemoryError.
Tensor empty(const Shape& shape, TensorOptions options = {});
// Returns a tensor with the given strides (of a dense layout) and unspecified contents.
Tensor empty_strided(const Shape& shape, const Strides& strides, TensorOptions options = {});
// Returns a channels-last image tensor [N,C,...] with unspecified contents.
Tensor empty_channels_last(const Shape& shape, TensorOptions options = {});
// Returns a tensor of x's shape with unspecified contents, contiguous with the dims in x's memory order.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, DType dtype);
// Returns a row-major tensor that views memory of the caller on options.device, without copying. `release`
// (may be empty) is called when the last tensor that views the memory is destroyed. Errors: ShapeError;
// ValueError for null.
Tensor from_blob(void* data, const Shape& shape, TensorOptions options = {},
                 std::function<void()> release = {});
// Returns a row-major tensor of T's dtype with these values. On meta the values are ignored.
// Errors: ShapeError unless the number of values is that of the shape.
template <DTypeElement T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device = kCPU);
// Returns a 1-dim tensor on the CPU with these values.
template <DTypeElement T> Tensor tensor(const std::vector<T>& values) {
  return tensor(values, {values.size()});
}
template <class T>
concept Element = std::is_arithmetic_v<T> || std::same_as<T, f16> || std::same_as<T, bf16>;
namespace internal {
// An element of the nested braces in tensor({{1, 2}, {3, 4}}): a number or a row of literals. Refers to
// temporaries of the call.
class Literal {
 public:
  template <Element T> Literal(T value) : number_(value), dtype_(dtype_for<T>()) {}
  Literal(std::initializer_list<Literal> row)
      : number_(false), dtype_(DType::kBool), row_(row), is_row_(true) {}

  bool is_row() const { return is_row_; }
  const std::initializer_list<Literal>& row() const { return row_; }
  Number number() const { return number_; }
  // The dtype of the number. Integer types, int among them, are i64.
  DType dtype() const { return dtype_; }
  template <Element T> static constexpr DType dtype_for() {
    if constexpr (std::same_as<T, bool>)
      return DType::kBool;
    else if constexpr (std::integral<T>)
      return DType::kI64;
    else if constexpr (std::same_as<T, long double>)
      return DType::kF64;
    else
      return dtype_v<T>;
  }

 private:
  Number number_;
  DType dtype_;
  std::initializer_list<Literal> row_;
  bool is_row_ = false;
};
}  // namespace internal
// Returns a tensor with the nested values: tensor({1, 2}) is i64[2], tensor({1.0}) is f64[1], tensor({{1.f},
// {2.f}}) is f32[2,1]. Several integer or several floating types give the widest one: tensor({NAN, 1.0}) is
// f64[2]. Integers with floating-point numbers give the default dtype: tensor({1, 2.5}) is f32[2].
// Errors: ShapeError if rows differ in length or depth; ValueError for an integer above 2^63 - 1.
Tensor tensor(std::initializer_list<internal::Literal> values);
// The same for a variable of type std::initializer_list<T>. Braces call the function above.
template <class List>
  requires(Element<typename List::value_type> &&
           std::same_as<List, std::initializer_list<typename List::value_type>>)
Tensor tensor(const List& values) {
  using T = typename List::value_type;
  constexpr DType kType = internal::Literal::dtype_for<T>();
  using Stored =
      std::conditional_t<kType == DType::kI64, int64_t, std::conditional_t<kType == DType::kF64, double, T>>;
  std::vector<Stored> all;
  for (const T value : values) {
    if constexpr (kType == DType::kI64)
      all.push_back(Number(value).integer());
    else
      all.push_back(static_cast<Stored>(value));
  }
  return tensor(all, {values.size()});
}
// Returns a 0-dimensional tensor. Conversion to integer dtypes truncates; values outside an integer dtype
// narrower than i64 wrap.
Tensor scalar(Number value, TensorOptions options = {});

// Returns a view of x's storage with this shape, strides and offset (in elements from the start of the
// storage), without autograd history. Bounds are not checked.
Tensor view_as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset);
// Returns a tensor that shares x's elements and has no autograd history.
Tensor detach(const Tensor& x);

// Returns "f32[32,8,28,28] cpu", with " channels-last" or " strided" if x is not row-major; "undefined" for
// an undefined x.
std::string describe(const Tensor& x);
// Returns values, dtype and shape as text. Long dims are abridged as in PyTorch.
std::string to_string(const Tensor& x);
std::ostream& operator<<(std::ostream& out, const Tensor& x);

}  // namespace gradus
