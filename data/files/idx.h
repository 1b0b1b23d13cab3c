// Reads IDX files, the array format of MNIST, plain or gzip-compressed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gradus/data/files/input_file.h"
#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/shape.h"

namespace gradus::data {

struct IdxOptions {
  int64_t max_bytes = int64_t{4} << 30;  // limit of the array's size, checked before memory is allocated
};

// An open IDX file whose header has been read and checked: two zero bytes, a type (08 u8, 09 i8, 0B i16, 0C i32,
// 0D f32, 0E f64), the number of dimensions, each dimension as a big-endian 32-bit number. The elements follow,
// big-endian, row-major; the content must end exactly after the last one.
// Errors: FileError naming the file, what was expected and what was found.
class IdxFile {
 public:
  explicit IdxFile(const std::filesystem::path& path, IdxOptions options = {});

  DType dtype() const { return dtype_; }  // of the array
  const Shape& shape() const { return shape_; }
  int64_t bytes() const { return shape_.product() * size_of(dtype_); }  // of the array
  const std::filesystem::path& path() const { return file_.path(); }
  std::string identity() const { return file_.identity(); }  // see InputFile
  // Writes the array to `out`, which has room for bytes(), row-major, in the host's byte order. Must be
  // called at most once.
  void read(void* out);

 private:
  template <class... Parts> [[noreturn]] void fail(const Parts&... parts) const;

  InputFile file_;
  DType dtype_ = DType::kU8;
  Shape shape_;
};

}  // namespace gradus::data
