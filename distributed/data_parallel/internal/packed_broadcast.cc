#include "gradus/distributed/data_parallel/internal/packed_broadcast.h"

#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::dist::internal {
namespace {

constexpr int64_t kPackBytes = int64_t(25) << 20;
constexpr int64_t kAlign = 16;  // alignment in bytes of each tensor in its pack

int64_t room_of(const Tensor& x) { return (x.nbytes() + kAlign - 1) / kAlign * kAlign; }

// Calls f(tensor, its elements in the pack, row-major) for each tensor.
template <class F> void for_each(const std::vector<Tensor>& tensors, const Tensor& flat, F f) {
  char* at = static_cast<char*>(flat.raw_ptr());
  for (const Tensor& x : tensors) {
    f(x, from_blob(at, x.shape(), {.dtype = x.dtype()}));
    at += room_of(x);
  }
}

}  // namespace

PackedBroadcast::PackedBroadcast(const Group& group, const std::vector<Tensor>& tensors, int root)
    : mine_(group.rank() == root) {
  std::vector<int64_t> bytes;
  for (const Tensor& x : tensors) {
    if (packs_.empty() || bytes.back() + room_of(x) > kPackBytes) {
      packs_.emplace_back();
      bytes.push_back(0);
    }
    packs_.back().tensors.push_back(x);
    bytes.back() += room_of(x);
  }
  for (size_t i = 0; i < packs_.size(); ++i) {
    Pack& pack = packs_[i];
    pack.flat = empty({bytes[i]}, {.dtype = DType::kU8});
    if (mine_)
      for_each(pack.tensors, pack.flat, [](const Tensor& x, const Tensor& packed) { raw::copy_(packed, x); });
    pack.work = broadcast(pack.flat, {.src = group.ranks()[root], .group = group, .async_op = true});
  }
}

void PackedBroadcast::finish() {
  for (Pack& pack : packs_) {
    pack.work.wait();
    if (!mine_)
      for_each(pack.tensors, pack.flat, [](const Tensor& x, const Tensor& packed) { raw::copy_(x, packed); });
  }
  packs_.clear();
}

}  // namespace gradus::dist::internal
