// Tensor and TensorImpl: layouts, access from the host, and creation. Strides and offsets count elements.
// Functions that read values (item, to_vector, host_data) wait until the tensor's device has computed them.
// Devices: cpu:0 computes in the calling thread; cpu:1 and up have a worker thread and a queue, cuda:N
// streams; meta tensors have no memory.
#include "gradus/tensor/tensor.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "gradus/tensor/base/device_failure.h"
#include "gradus/tensor/host_copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/device_runtime.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {
namespace {

// Returns the strides with those of size-1 dims replaced by the row-major value, so that equal layouts have
// equal strides.
Strides normalized(const Shape& shape, Strides strides) {
  int64_t next = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 1) strides[i] = next;
    next = strides[i] * std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool is_row_major_layout(const Shape& shape, const Strides& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

// Returns the one-element tensor x in host memory. Blocks.
// Errors: ShapeError unless x has one element.
Tensor one_element_on_host(const Tensor& x) {
  if (x.numel() != 1)
    throw ShapeError("item", "needs exactly one element, got ", describe(x), "; to_vector() gives all");
  return internal::in_host_memory(x, "item");
}

double read_as_double(const Tensor& x, int64_t offset) {
  return dispatch_all(x.dtype(), [&]<class T>() { return static_cast<double>(x.ptr<T>()[offset]); });
}

}  // namespace

TensorImpl::TensorImpl(Ref<Storage> s, int64_t o, const Shape& sh, const Strides& st, DType t)
    : storage(std::move(s)),
      offset(o),
      shape(sh),
      strides(normalized(sh, st)),
      numel(sh.product()),
      dtype(t),
      row_major(is_row_major_layout(sh, strides)) {}

TensorImpl::~TensorImpl() {
  if (slot) slot->on_owner_destroyed();
}

void Tensor::throw_undefined() {
  throw StateError("Tensor", "an undefined tensor (none) was given where a value is needed");
}

int64_t Tensor::size(int64_t d) const { return shape()[wrap_dim(d, dim(), "size")]; }
int64_t Tensor::stride(int64_t d) const { return strides()[wrap_dim(d, dim(), "stride")]; }

bool Tensor::is_channels_last() const {
  if (dim() < 3 || dim() > 5 || is_row_major()) return false;
  const Strides want = channels_last_strides(shape());
  for (int i = 0; i < dim(); ++i)
    if (shape()[i] != 1 && strides()[i] != want[i]) return false;
  return true;
}

// A layout is dense if its elements fill a block without gaps or overlap, in any order of dims.
bool Tensor::is_dense() const {
  if (is_row_major()) return true;
  int64_t step = 1;
  const Dims order = memory_order(strides());
  for (int i = dim() - 1; i >= 0; --i) {
    const int d = static_cast<int>(order[i]);
    if (shape()[d] == 1) continue;
    if (strides()[d] != step) return false;
    step *= shape()[d];
  }
  return true;
}

const void* Tensor::host_data(DType expected) const {
  if (dtype() != expected)
    throw DTypeError("data", "asked for ", expected, " elements of ", describe(*this),
                     "; to_vector() converts");
  if (!is_row_major())
    throw ShapeError("data", "elements do not lie in row-major order, call contiguous(): ", describe(*this));
  if (device().type != DeviceType::kCPU)
    throw DeviceError("data", "not in host memory, call to(x, kCPU): ", describe(*this));
  refuse_capture("data", "it gives the host access to values, and the host takes no part in a replay");
  synchronize(device());
  return raw_ptr();
}

double Tensor::item_f64() const { return read_as_double(one_element_on_host(*this), 0); }

int64_t Tensor::item_i64() const { return *one_element_on_host(*this).ptr<int64_t>(); }

template <DTypeElement T> std::vector<T> Tensor::to_vector() const {
  const Tensor host = internal::in_host_memory(*this, "to_vector");
  std::vector<T> out(numel());
  if (out.empty()) return out;
  dispatch_all(dtype(), [&]<class S>() {
    const S* p = host.ptr<S>();
    Dims at = Dims::filled(dim(), 0);
    for (int64_t i = 0; i < numel(); ++i) {
      int64_t offset = 0;
      for (int d = 0; d < dim(); ++d) offset += at[d] * strides()[d];
      out[i] = static_cast<T>(p[offset]);
      for (int d = dim() - 1; d >= 0 && ++at[d] == shape()[d]; --d) at[d] = 0;
    }
  });
  return out;
}
template std::vector<double> Tensor::to_vector() const;
template std::vector<float> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<int16_t> Tensor::to_vector() const;
template std::vector<int8_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;
template std::vector<f16> Tensor::to_vector() const;
template std::vector<bf16> Tensor::to_vector() const;

namespace {
Tensor allocate_tensor(int64_t numel, const Shape& shape, const Strides& strides, TensorOptions options) {
  try {
    return Tensor(make_ref<TensorImpl>(Storage::allocate(options.device, numel * size_of(options.dtype)), 0,
                                       shape, strides, options.dtype));
  } catch (const OutOfMemoryError& e) {
    const std::string_view message = std::string_view(e.what()).substr(e.op().size() + 3);  // "[op] "
    throw OutOfMemoryError(e.op(), message, "; no room for ", options.dtype, shape);
  }
}
}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  const int64_t numel = checked_numel(shape, "empty");
  return allocate_tensor(numel, shape, row_major_strides(shape), options);
}

Tensor empty_channels_last(const Shape& shape, TensorOptions options) {
  const int64_t numel = checked_numel(shape, "empty_channels_last");
  return allocate_tensor(numel, shape, channels_last_strides(shape), options);
}

Tensor empty_strided(const Shape& shape, const Strides& strides, TensorOptions options) {
  const int64_t numel = checked_numel(shape, "empty_strided");
  if (strides.size() != shape.size())
    throw ShapeError("empty_strided", "needs one stride per dimension: shape ", shape, ", strides ", strides);
  const Tensor x = allocate_tensor(numel, shape, strides, options);
  if (!x.is_dense())
    throw ShapeError("empty_strided", "strides must fill a block: shape ", shape, ", strides ", strides);
  return x;
}

Tensor empty_like(const Tensor& x, DType dtype) {
  const TensorOptions options{dtype, x.device()};
  if (x.is_row_major()) return empty(x.shape(), options);
  const Strides strides = strides_in_order(x.shape(), memory_order(x.strides()));
  return allocate_tensor(x.numel(), x.shape(), strides, options);
}
Tensor empty_like(const Tensor& x) { return empty_like(x, x.dtype()); }

Tensor from_blob(void* data, const Shape& shape, TensorOptions options, std::function<void()> release) {
  refuse_capture("from_blob", "the host may write to the memory, and takes no part in a replay");
  const int64_t numel = checked_numel(shape, "from_blob");
  if (!data && numel > 0) throw ValueError("from_blob", "null data for shape ", shape);
  auto storage = Storage::adopt(options.device, data, numel * size_of(options.dtype), std::move(release));
  return Tensor(make_ref<TensorImpl>(std::move(storage), 0, shape, row_major_strides(shape), options.dtype));
}

namespace {
// In a step that is captured on the CPU: writes the values that the host has written to x again in each
// replay, because kernels may overwrite them.
void repeat_in_replays(const Tensor& x) {
  Capture* const capture = recording_capture();
  if (!capture || capture->device() != x.device() || x.device() != kCPU) return;
  const char* const begin = static_cast<const char*>(x.raw_ptr());
  capture->run_on_host("tensor", [x, values = std::string(begin, begin + x.nbytes())] {
    std::memcpy(x.raw_ptr(), values.data(), values.size());
    x.storage()->bump_version();
  });
}

template <class T, class Range> Tensor copy_values(const Range& values, const Shape& shape, Device device) {
  if (checked_numel(shape, "tensor") != static_cast<int64_t>(values.size()))
    throw ShapeError("tensor", values.size(), " values do not fill shape ", shape);
  if (device.type == DeviceType::kMeta) return empty(shape, {dtype_v<T>, device});
  const bool on_host = device.type == DeviceType::kCPU;
  if (!on_host) internal::runtime_of(device, "tensor");
  Tensor host = empty(shape, {dtype_v<T>, on_host ? device : kCPU});
  std::copy(values.begin(), values.end(), host.ptr<T>());
  if (on_host) {
    repeat_in_replays(host);
    return host;
  }
  Tensor out = empty(shape, {dtype_v<T>, device});
  internal::copy_from_host(out, host, "tensor");
  return out;
}
}  // namespace

template <DTypeElement T> Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device) {
  return copy_values<T>(values, shape, device);
}
template Tensor tensor(const std::vector<double>&, const Shape&, Device);
template Tensor tensor(const std::vector<float>&, const Shape&, Device);
template Tensor tensor(const std::vector<f16>&, const Shape&, Device);
template Tensor tensor(const std::vector<bf16>&, const Shape&, Device);
template Tensor tensor(const std::vector<int64_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<int32_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<int16_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<int8_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<uint8_t>&, const Shape&, Device);
template Tensor tensor(const std::vector<bool>&, const Shape&, Device);

namespace {

// Converts a number to the element type T: bool by != 0, integers by truncation, 16-bit floats through f32.
template <class T> T element(Number number) {
  if constexpr (std::is_same_v<T, bool>)
    return number.to_double() != 0;
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(number.to_i64());
  else if constexpr (std::is_same_v<T, double>)
    return number.to_double();
  else
    return T(number.is_floating() ? static_cast<float>(number.to_double())
                                  : static_cast<float>(number.integer()));
}

using internal::Literal;
using Row = std::initializer_list<Literal>;

// Appends the numbers of a row, which is at nesting depth `dim`, in row-major order.
// Errors: ShapeError unless the row fits `shape`.
void append(const Row& row, int dim, const Shape& shape, std::vector<const Literal*>& numbers) {
  if (static_cast<int64_t>(row.size()) != shape[dim])
    throw ShapeError("tensor", "a row has ", row.size(), " values but the first has ", shape[dim]);
  const bool expects_rows = dim + 1 < shape.size();
  for (const Literal& part : row) {
    if (part.is_row() != expects_rows)
      throw ShapeError("tensor", "expected numbers in lists of one depth, got a list beside a number");
    if (expects_rows)
      append(part.row(), dim + 1, shape, numbers);
    else
      numbers.push_back(&part);
  }
}

// Returns the widest dtype of the numbers; the default dtype for none, and for integers mixed with floats.
DType common_dtype(const std::vector<const Literal*>& numbers) {
  if (numbers.empty()) return get_default_dtype();
  DType widest = numbers[0]->dtype();
  bool mixed = false;
  for (const Literal* number : numbers) {
    mixed |= is_floating(number->dtype()) != is_floating(widest);
    widest = promote(widest, number->dtype());
  }
  return mixed ? get_default_dtype() : widest;
}

}  // namespace

Tensor tensor(std::initializer_list<internal::Literal> values) {
  Shape shape;
  for (const Row* row = &values;; row = &row->begin()->row()) {
    shape.push_back(static_cast<int64_t>(row->size()));
    if (row->size() == 0 || !row->begin()->is_row()) break;
  }
  std::vector<const Literal*> numbers;
  append(values, 0, shape, numbers);
  const Tensor out = empty(shape, {.dtype = common_dtype(numbers)});
  dispatch_all(out.dtype(), [&]<class T>() {
    const auto value = [](const Literal* number) { return element<T>(number->number()); };
    std::transform(numbers.begin(), numbers.end(), out.ptr<T>(), value);
  });
  repeat_in_replays(out);
  return out;
}

Tensor scalar(Number number, TensorOptions options) {
  Tensor host = empty({}, {options.dtype, kCPU});
  dispatch_all(options.dtype, [&]<class T>() { *host.ptr<T>() = element<T>(number); });
  if (options.device == kCPU) {
    repeat_in_replays(host);
    return host;
  }
  Tensor out = empty({}, options);
  if (options.device.type == DeviceType::kCPU)
    current_stream(options.device).enqueue([out, host] {
      std::memcpy(out.raw_ptr(), host.raw_ptr(), size_of(out.dtype()));
    });
  else if (options.device.type == DeviceType::kCUDA)
    internal::copy_from_host(out, host, "scalar");
  return out;
}

Tensor view_as_strided(const Tensor& x, const Shape& shape, const Strides& strides, int64_t offset) {
  return Tensor(make_ref<TensorImpl>(x.storage(), offset, shape, strides, x.dtype()));
}

Tensor detach(const Tensor& x) {
  if (!x.defined()) throw StateError("detach", "x is undefined (none) where a tensor is needed");
  return view_as_strided(x, x.shape(), x.strides(), x.impl().offset);
}

Tensor Tensor::detach() const { return gradus::detach(*this); }

std::string describe(const Tensor& x) {
  if (!x.defined()) return "undefined";
  return concat(x.dtype(), x.shape(), ' ', x.device(),
                x.is_row_major()       ? ""
                : x.is_channels_last() ? " channels-last"
                                       : " strided");
}

}  // namespace gradus
