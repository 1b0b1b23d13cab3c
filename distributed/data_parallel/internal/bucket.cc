// Implementation of Bucket: packs gradients into contiguous memory, and unpacks results.
#include "gradus/distributed/data_parallel/internal/bucket.h"

#include "gradus/distributed/group/collective_argument.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/elementwise.h"

namespace gradus::dist::internal {

void Bucket::allocate(const Gradients& gradients) {
  if (memory.defined() && memory.storage()->use_count() == 1) return;
  int64_t numel = 0;
  for (size_t i : params) numel += gradients[i].param.numel();
  memory = empty({numel}, {.dtype = dtype});
}

Tensor Bucket::view(int64_t offset, const Shape& shape) const {
  Strides strides = Strides::filled(shape.size(), 1);
  for (int d = shape.size() - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * std::max<int64_t>(shape[d + 1], 1);
  return view_as_strided(memory, shape, strides, offset);
}

int64_t Bucket::pack(Gradients& gradients, FiniteCheck& check) const {
  return for_each_used(gradients, [&](size_t i, Gradient& g, const Tensor& view) {
    if (!g.grad.defined()) return raw::fill_(view, 0);
    raw::copy_(view, g.grad);
    check.check(i, view);
    if (as_views) g.grad = Tensor();
  });
}

std::vector<BucketEntry> Bucket::local_gradients(Gradients& gradients, FiniteCheck& check) const {
  std::vector<BucketEntry> entries;
  for (size_t i : params) {
    Gradient& g = gradients[i];
    BucketEntry& entry = entries.emplace_back(BucketEntry{i, g.param.nbytes(), {}, false});
    if (!g.grad.defined()) continue;
    check_can_average("backward", "a gradient", g.grad);  // the module may have been moved since attaching
    entry.grad = raw::contiguous(g.grad);
    wait_for_device(entry.grad);
    check.check(i, entry.grad);
    if (as_views) g.grad = Tensor();
    g.in_place = entry.in_place =
        entry.bytes >= kMinSeparateBytes && g.is_exclusive && entry.grad.is_same(g.grad);
  }
  return entries;
}

int64_t Bucket::unpack(Gradients& gradients, std::vector<GradCallback::Delivery>& to) const {
  const int64_t elements = for_each_used(gradients, [&](size_t, Gradient& g, Tensor view) {
    if (g.in_place) {
      to.push_back({g.param, std::exchange(g.grad, Tensor())});
    } else if (as_views && g.param.is_row_major() && g.param.device() == kCPU) {
      to.push_back({g.param, std::move(view), true});
    } else {
      // Reuses the memory of the local gradient if nothing else shares it.
      Tensor grad = g.grad.sole_owner() && g.grad.is_dense() ? std::move(g.grad) : empty_like(g.param);
      g.grad = Tensor();
      raw::copy_(grad, view);
      to.push_back({g.param, std::move(grad)});
    }
  });
  return elements * size_of(dtype);
}

}  // namespace gradus::dist::internal
