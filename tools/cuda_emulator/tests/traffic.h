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

// 64 x 64 transposed through shared memory; 512 elements of which each is 8 apart; 24 bytes from each of 256
// threads to another.
void transpose(bool padded);
void every_eighth();
void exchange_structs();

}  // namespace traffic
