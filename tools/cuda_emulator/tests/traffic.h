// Kernels whose memory traffic can be counted by hand, for traffic_test.cc.
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

// Transposes a 64 x 64 matrix through shared memory; reads every eighth of 4096 elements; exchanges structs
// of 24 bytes between 256 threads through shared memory.
void transpose(bool padded);
void every_eighth();
void exchange_structs();

}  // namespace traffic
