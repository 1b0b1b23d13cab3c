// Checksums of tensors by raw::hashes_of, of lists and text by XXH3 (Collet, xxHash), and the search for NaN and
// infinity, which copies tensors of other devices to cpu:0.
#include "gradus/distributed/data_parallel/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>
#include <map>
#include <utility>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/optim_step.h"
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

int64_t checksum_of(const Tensor& x) { return checksums_of({x})[0]; }

// The checksum of a tensor is XXH3 of [hash, dtype, sizes...].
std::vector<int64_t> checksums_of(const std::vector<Tensor>& xs) {
  std::map<std::pair<DeviceType, int>, std::vector<size_t>> by_device;
  for (size_t i = 0; i < xs.size(); ++i) by_device[{xs[i].device().type, xs[i].device().index}].push_back(i);
  std::vector<int64_t> checksums(xs.size());
  for (const auto& [device, indices] : by_device) {
    std::vector<Tensor> tensors;
    for (const size_t i : indices) tensors.push_back(xs[i]);
    const std::vector<int64_t> hashes = raw::hashes_of(tensors).to_vector<int64_t>();
    for (size_t k = 0; k < indices.size(); ++k) {
      const Tensor& x = tensors[k];
      std::vector<int64_t> parts{hashes[k], int64_t(x.dtype())};
      for (const int64_t n : x.shape()) parts.push_back(n);
      checksums[indices[k]] = int64_t(XXH3_64bits(parts.data(), parts.size() * sizeof(int64_t)));
    }
  }
  return checksums;
}

int64_t checksum_of(const std::vector<Tensor>& xs) {
  const std::vector<int64_t> each = checksums_of(xs);
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
