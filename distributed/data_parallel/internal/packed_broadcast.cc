// Implementation of PackedBroadcast: copies tensors into packs of about 25 MiB and broadcasts each.
#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"

#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist::internal {
namespace {

constexpr int64_t kMaxPackBytes = int64_t(25) << 20;
constexpr int64_t kAlignment = 16;  // in bytes, of each tensor in its pack

int64_t padded_bytes(const Tensor& x) { return (x.nbytes() + kAlignment - 1) / kAlignment * kAlignment; }

// Calls f(tensor, row-major view of its elements in the pack) for each tensor.
template <class F> void for_each(const std::vector<Tensor>& tensors, const Tensor& flat, F f) {
  char* data = static_cast<char*>(flat.raw_ptr());
  for (const Tensor& x : tensors) {
    f(x, from_blob(data, x.shape(), {.dtype = x.dtype()}));
    data += padded_bytes(x);
  }
}

}  // namespace

PackedBroadcast::PackedBroadcast(const Group& group, const std::vector<Tensor>& tensors, int root)
    : is_root_(group.rank() == root) {
  std::vector<int64_t> bytes;
  for (const Tensor& x : tensors) {
    if (packs_.empty() || bytes.back() + padded_bytes(x) > kMaxPackBytes) {
      packs_.emplace_back();
      bytes.push_back(0);
    }
    packs_.back().tensors.push_back(x);
    bytes.back() += padded_bytes(x);
  }
  for (size_t i = 0; i < packs_.size(); ++i) {
    Pack& pack = packs_[i];
    pack.flat = empty({bytes[i]}, {.dtype = DType::kU8});
    if (is_root_)
      for_each(pack.tensors, pack.flat, [](const Tensor& x, const Tensor& packed) { raw::copy_(packed, x); });
    pack.work = broadcast(pack.flat, {.src = group.ranks()[root], .group = group, .async_op = true});
  }
}

void PackedBroadcast::finish() {
  for (Pack& pack : packs_) {
    pack.work.wait();
    if (!is_root_)
      for_each(pack.tensors, pack.flat, [](const Tensor& x, const Tensor& packed) { raw::copy_(x, packed); });
  }
  packs_.clear();
}

}  // namespace gradus::dist::internal
