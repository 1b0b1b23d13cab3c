// Kernels whose traffic is known.
#pragma once

#include <cstdint>

namespace traffic {

// Device memory that holds zeros.
class Zeros {
 public:
  explicit Zeros(int64_t bytes);
  ~Zeros();
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  void* data() const { return p_; }

 private:
  void* p_ = nullptr;
};

// Of the demonstration: 64 x 64 transposed through shared memory, 512 elements of which each is 8 apart.
void transpose(bool padded);
void every_eighth();

// Of Gradus, on dense operands of so many bytes.
void add_f32(int64_t bytes);
void add_bf16(int64_t bytes);
void add_strided(int64_t bytes);
void to_channels_last(int64_t bytes);
void copy_rows_with_gaps(int64_t bytes);
void fill(int64_t bytes);
void sum_rows(int64_t bytes, int64_t n);
void sum_columns(int64_t bytes, int64_t inner);

}  // namespace traffic
