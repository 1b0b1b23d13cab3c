// IDX files: the arrays that MNIST and its relatives come in. Plain or gzip.
#pragma once

#include <cstdint>
#include <filesystem>

#include "gradus/tensor/tensor.h"

namespace gradus::data {

struct IdxOptions {
  int64_t max_bytes = int64_t{4} << 30;  // of the array; more is refused before anything is allocated
};

// Reads an IDX file: two zero bytes, a type (08 u8, 09 i8, 0B i16, 0C i32, 0D f32, 0E f64), the number of
// dimensions, each dimension as a big-endian 32-bit number, then the elements, big-endian, row-major. Returns
// u8, i32 (for i8, i16, i32), f32 or f64. The header's claim is checked against the file's size before memory
// is taken, and the content must end where the header says. Errors: FileError naming the file, what was
// expected and what was found.
Tensor read_idx(const std::filesystem::path& path, IdxOptions options = {});

}  // namespace gradus::data
