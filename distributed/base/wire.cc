// Wire forms. Dims: their number as u8, then an i64 each. Tensor: Kind, and for kTensor dtype, shape and
// row-major elements. Received sizes and dtypes are checked (StoreError).
#include "gradus/distributed/base/wire.h"

#include <algorithm>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist {
namespace {

enum class Kind : uint8_t { kNone, kTensor };  // kNone: undefined tensor

}  // namespace

void WireWriter::put(const Dims& value) {
  put(uint8_t(value.size()));
  for (int64_t size : value) put(size);
}

void WireReader::get(Dims& value) {
  uint8_t n;
  get(n);
  if (n > kMaxDims) throw_malformed();
  value = Dims::filled(n, 0);
  for (int64_t& size : value) get(size);
}

void WireWriter::put(const Tensor& value) {
  put(value ? Kind::kTensor : Kind::kNone);
  if (!value) return;
  if (value.device().type == DeviceType::kMeta)
    throw DeviceError("to_wire", "a meta tensor has no data: ", describe(value));
  Tensor x = raw::contiguous(value);
  if (x.device().type == DeviceType::kCUDA) x = raw::to(x, kCPU);
  synchronize(x.device());
  put(x.dtype());
  put(x.shape());
  if (x.numel() > 0) bytes_.append(static_cast<const char*>(x.raw_ptr()), x.nbytes());
}

void WireReader::get(Tensor& value) {
  Kind kind;
  get(kind);
  value = Tensor();
  if (kind == Kind::kNone) return;
  DType dtype;
  Shape shape;
  get(dtype);
  if (kind != Kind::kTensor || dtype > DType::kBool) throw_malformed();
  get(shape);
  // Before the allocation. A size of 0 counts as 1 in the product, to detect overflow of the other sizes.
  int64_t numel = 1;
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(numel, std::max<int64_t>(size, 1), &numel)) throw_malformed();
  if (std::ranges::find(shape, 0) != shape.end()) numel = 0;
  if (uint64_t(numel) > remaining_.size() / size_of(dtype)) throw_malformed();
  const std::string_view bytes = read_bytes(numel * size_of(dtype));
  if (dtype == DType::kBool && std::ranges::any_of(bytes, [](char c) { return uint8_t(c) > 1; }))
    throw_malformed();
  value = empty(shape, {.dtype = dtype});
  if (!bytes.empty()) std::memcpy(value.raw_ptr(), bytes.data(), bytes.size());
}

}  // namespace gradus::dist
