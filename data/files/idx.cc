// Implementation of the IDX reader.
#include "gradus/data/files/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iomanip>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

constexpr const char* kOp = "read_idx";

std::string hex(std::span<const unsigned char> bytes) {
  std::ostringstream out;
  for (unsigned char b : bytes) out << std::hex << std::setw(2) << std::setfill('0') << int(b);
  return out.str();
}

struct ElementType {
  DType dtype = DType::kU8;  // dtype of the tensor
  int64_t bytes = 1;         // size of an element in the file
};

ElementType element_type(unsigned char code, const std::filesystem::path& path) {
  switch (code) {
    case 0x08:
      return {DType::kU8, 1};
    case 0x09:
      return {DType::kI8, 1};
    case 0x0B:
      return {DType::kI16, 2};
    case 0x0C:
      return {DType::kI32, 4};
    case 0x0D:
      return {DType::kF32, 4};
    case 0x0E:
      return {DType::kF64, 8};
    default:
      throw FileError(kOp, path.string(), ": unknown element type ", hex({&code, 1}),
                      ", expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32) or 0e (f64)");
  }
}

uint64_t big_endian(const unsigned char* p, int64_t bytes) {
  uint64_t v = 0;
  for (int64_t i = 0; i < bytes; ++i) v = (v << 8) | p[i];
  return v;
}

// Writes the elements to out[first], out[first + 1], ...
void decode(std::span<const unsigned char> from, unsigned char code, void* out, int64_t first) {
  const int64_t item = element_type(code, {}).bytes, n = static_cast<int64_t>(from.size()) / item;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = big_endian(from.data() + i * item, item);
    switch (code) {
      case 0x09:
        static_cast<int8_t*>(out)[first + i] = static_cast<int8_t>(bits);
        break;
      case 0x0B:
        static_cast<int16_t*>(out)[first + i] = static_cast<int16_t>(bits);
        break;
      case 0x0C:
        static_cast<int32_t*>(out)[first + i] = static_cast<int32_t>(bits);
        break;
      case 0x0D:
        static_cast<float*>(out)[first + i] = std::bit_cast<float>(static_cast<uint32_t>(bits));
        break;
      default:
        static_cast<double*>(out)[first + i] = std::bit_cast<double>(bits);
        break;
    }
  }
}

}  // namespace

template <class... Parts> void IdxFile::fail(const Parts&... parts) const {
  throw FileError(kOp, file_.path().string(), ": ", parts...);
}

IdxFile::IdxFile(const std::filesystem::path& path, IdxOptions options) : file_(path, kOp) {
  std::array<unsigned char, 4> magic{};
  const int64_t magic_bytes = file_.read(magic.data(), 4);
  if (magic_bytes != 4) fail("is no IDX file: ", magic_bytes, " bytes long, expected a header of at least 8");
  if (magic[0] != 0 || magic[1] != 0)
    fail("is no IDX file: starts with ", hex(magic), ", expected 0000, a type and a number of dimensions");
  code_ = magic[2];
  const ElementType type = element_type(code_, path);
  dtype_ = type.dtype;
  const int ndim = magic[3];
  if (ndim < 1 || ndim > kMaxDims) fail("has ", ndim, " dimensions, expected 1 to ", kMaxDims);

  int64_t content = type.bytes;
  bool is_empty = false;
  for (int i = 0; i < ndim; ++i) {
    std::array<unsigned char, 4> bytes{};
    if (file_.read(bytes.data(), 4) != 4) fail("ends inside its header: expected ", ndim, " dimensions");
    const int64_t size = static_cast<int64_t>(big_endian(bytes.data(), 4));
    shape_.push_back(size);
    // An empty dimension counts as 1, so that overflowing sizes are rejected even if the array is empty.
    if (size == 0) is_empty = true;
    if (__builtin_mul_overflow(content, std::max<int64_t>(size, 1), &content))
      fail("claims ", shape_, " elements so far: too large");
  }
  if (content / type.bytes > options.max_bytes / size_of(type.dtype))
    fail("claims ", name_of(type.dtype), shape_, ", more than the limit of ", options.max_bytes, " bytes");
  if (is_empty) content = 0;
  const int64_t header = 4 + 4 * int64_t{ndim};
  if (content > file_.max_content_size() - header)
    fail("is cut short: the header claims ", shape_, " = ", content, " bytes after it, but the ",
         file_.is_gzip() ? "gzip file of " : "file has ", file_.file_size(), " bytes",
         file_.is_gzip() ? " cannot hold them" : "");
  if (!file_.is_gzip() && content < file_.file_size() - header)
    fail("is ", file_.file_size(), " bytes long, expected ", header + content, " for ", shape_);
}

void IdxFile::read(void* out) {
  const int64_t item = element_type(code_, file_.path()).bytes, content = shape_.product() * item;
  int64_t done = 0;
  if (dtype_ == DType::kU8) {
    done = file_.read(out, content);
  } else {
    std::vector<unsigned char> chunk(1 << 16);
    while (done < content) {
      const int64_t n = file_.read(chunk.data(), std::min<int64_t>(chunk.size(), content - done));
      decode({chunk.data(), static_cast<size_t>(n)}, code_, out, done / item);
      done += n;
      if (n < static_cast<int64_t>(chunk.size())) break;
    }
  }
  if (done != content)
    fail("is cut short: holds ", done, " of the ", content, " bytes that its header claims (", shape_, ")");
  char extra = 0;
  if (file_.read(&extra, 1) != 0)
    fail("goes on after the ", content, " bytes that its header claims (", shape_, ")");
}

Tensor read_idx(const std::filesystem::path& path, IdxOptions options) {
  IdxFile file(path, options);
  Tensor out = empty(file.shape(), {.dtype = file.dtype()});
  file.read(out.raw_ptr());
  return out;
}

}  // namespace gradus::data
