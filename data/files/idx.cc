// Reads IDX files, the array format of MNIST, plain or gzip-compressed. The constructor checks the header, and the
// size of the file, before memory for the elements is allocated; read() converts the elements from big-endian.
// Source: Y. LeCun, "The MNIST database of handwritten digits".
#include "gradus/data/files/idx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "gradus/tensor/base/error.h"

namespace gradus::data {
namespace {

using internal::hex;

constexpr const char* kOp = "IdxFile";

// Returns the dtype for the header's type code. `path` is the file's name in the error.
// Errors: FileError for an unknown code.
DType element_type(unsigned char code, const std::filesystem::path& path) {
  constexpr std::pair<unsigned char, DType> kTypes[] = {{0x08, DType::kU8},  {0x09, DType::kI8},
                                                        {0x0B, DType::kI16}, {0x0C, DType::kI32},
                                                        {0x0D, DType::kF32}, {0x0E, DType::kF64}};
  for (const auto& [known, dtype] : kTypes)
    if (known == code) return dtype;
  throw FileError(kOp, path.string(), ": unknown element type ", hex({&code, 1}),
                  ", expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), 0d (f32) or 0e (f64)");
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
  dtype_ = element_type(magic[2], path);
  const int ndim = magic[3];
  if (ndim < 1 || ndim > kMaxDims) fail("has ", ndim, " dimensions, expected 1 to ", kMaxDims);
  int64_t content = size_of(dtype_);  // bytes of all elements, in the file and in memory
  bool is_empty = false;
  for (int i = 0; i < ndim; ++i) {
    std::array<unsigned char, 4> bytes{};
    if (file_.read(bytes.data(), 4) != 4) fail("ends inside its header: expected ", ndim, " dimensions");
    const int64_t size = int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    shape_.push_back(size);
    // A dimension of size 0 counts as 1 here, so that a header whose other sizes overflow is rejected even if the
    // array has no elements.
    if (size == 0) is_empty = true;
    if (__builtin_mul_overflow(content, std::max<int64_t>(size, 1), &content))
      fail("claims ", shape_, " elements so far: too large");
  }
  if (content > options.max_bytes)
    fail("claims ", name_of(dtype_), shape_, ", more than the limit of ", options.max_bytes, " bytes");
  if (is_empty) content = 0;
  const int64_t header = 4 + 4 * int64_t{ndim};
  // A plain file must have exactly the expected size. The decompressed size of a gzip file is only known to be
  // bounded by the maximal compression ratio; read() checks the exact size.
  if (content > file_.max_content_size() - header)
    fail("is cut short: the header claims ", shape_, " = ", content, " bytes after it, but the ",
         file_.is_gzip() ? "gzip file of " : "file has ", file_.file_size(), " bytes",
         file_.is_gzip() ? " cannot hold them" : "");
  if (!file_.is_gzip() && content < file_.file_size() - header)
    fail("is ", file_.file_size(), " bytes long, expected ", header + content, " for ", shape_);
}

void IdxFile::read(void* out) {
  static_assert(std::endian::native == std::endian::little);
  const int64_t item = size_of(dtype_), content = bytes();
  const int64_t done = file_.read(out, content);
  auto* const p = static_cast<unsigned char*>(out);
  for (int64_t i = 0; item > 1 && i < done / item; ++i) std::reverse(p + i * item, p + (i + 1) * item);
  if (done != content)
    fail("is cut short: holds ", done, " of the ", content, " bytes that its header claims (", shape_, ")");
  char extra = 0;
  if (file_.read(&extra, 1) != 0)
    fail("goes on after the ", content, " bytes that its header claims (", shape_, ")");
}

}  // namespace gradus::data
