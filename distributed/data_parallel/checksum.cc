// Checksums of tensors, lists and text with XXH3 (Collet, xxHash), and the search for NaN and infinity. A
// tensor on a GPU or another CPU device is copied to cpu:0 first, and the calls wait for the copy.
#include "gradus/distributed/data_parallel/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist::internal {
namespace {

// Returns x as a row-major tensor in host memory: x itself, or a copy that is complete.
Tensor in_host_memory(const Tensor& x) {
  const Tensor y = raw::contiguous(x.device() == kCPU ? x : raw::to(x, kCPU));
  if (!(x.device() == kCPU)) synchronize(x.device());
  return y;
}

// Returns the index of the first of n elements with all exponent bits (`mask`) set: NaN or infinity. Returns
// -1 if there is none. Searches in blocks; the loop over a block has no branch, so that it vectorizes.
template <class Bits> int64_t find_exponent(const void* data, int64_t n, Bits mask) {
  const Bits* const bits = static_cast<const Bits*>(data);
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    bool found = false;
    for (int64_t i = begin; i < end; ++i) found |= (bits[i] & mask) == mask;
    if (!found) continue;
    for (int64_t i = begin;; ++i)
      if ((bits[i] & mask) == mask) return i;
  }
  return -1;
}

}  // namespace

// Hashes the elements' bytes, with the hash of [dtype, sizes...] as seed.
int64_t checksum_of(const Tensor& x) {
  std::vector<int64_t> header{int64_t(x.dtype())};
  for (const int64_t n : x.shape()) header.push_back(n);
  const XXH64_hash_t seed = XXH3_64bits(header.data(), header.size() * sizeof(int64_t));
  const Tensor y = in_host_memory(x);
  return int64_t(XXH3_64bits_withSeed(y.raw_ptr(), size_t(y.nbytes()), seed));
}

int64_t checksum_of(const std::vector<Tensor>& xs) {
  std::vector<int64_t> each;
  for (const Tensor& x : xs) each.push_back(checksum_of(x));
  return int64_t(XXH3_64bits(each.data(), each.size() * sizeof(int64_t)));
}

int64_t checksum_of(std::string_view text) { return int64_t(XXH3_64bits(text.data(), text.size())); }

int64_t first_not_finite(const Tensor& x) {
  const Tensor y = in_host_memory(x);
  switch (y.dtype()) {
    case DType::kF64:
      return find_exponent<uint64_t>(y.raw_ptr(), y.numel(), 0x7ff0'0000'0000'0000);
    case DType::kF32:
      return find_exponent<uint32_t>(y.raw_ptr(), y.numel(), 0x7f80'0000);
    case DType::kF16:
      return find_exponent<uint16_t>(y.raw_ptr(), y.numel(), 0x7c00);
    case DType::kBF16:
      return find_exponent<uint16_t>(y.raw_ptr(), y.numel(), 0x7f80);
    default:
      return -1;
  }
}

}  // namespace gradus::dist::internal
