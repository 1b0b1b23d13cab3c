// Bucket: packs gradients into contiguous memory (row-major views, one after the other), all-reduces them,
// and unpacks the results. pack serves comm hooks, prepare and bucket_all_reduce serve the default
// all-reduce, which packs when the collective starts: only then the Consensus, the ranks' agreement on the
// gradients to reduce, is known. `reduced` has one flag per attached tensor, equal on all ranks. A gradient
// with the flag that this rank lacks is sent as zeros.
#include "gradus/distributed/data_parallel/internal/bucket.h"

#include <algorithm>
#include <chrono>

#include "gradus/distributed/group/collective_argument.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::dist::internal {

bool Bucket::is_reduced(const std::vector<bool>& reduced) const {
  return std::ranges::any_of(gradients, [&](const Gradient& g) { return reduced[g.index]; });
}

void Bucket::allocate(const Tensor& reusable) {
  int64_t numel = 0;
  for (const Gradient& g : gradients) numel += g.param.numel();
  const Device of_param = gradients[0].param.device(),
               device = of_param.type == DeviceType::kCUDA ? of_param : kCPU;
  const bool reuse = reusable.defined() && reusable.dtype() == dtype() && reusable.device() == device &&
                     reusable.storage()->use_count() == 1;
  memory = reuse ? reusable : empty({numel}, {.dtype = dtype(), .device = device});
}

Tensor Bucket::view(int64_t offset, const Shape& shape) const {
  Strides strides = Strides::filled(shape.size(), 1);
  for (int d = shape.size() - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * std::max<int64_t>(shape[d + 1], 1);
  return view_as_strided(memory, shape, strides, offset);
}

void Bucket::pack(const std::vector<bool>& reduced, FiniteCheck& check) {
  std::vector<Tensor> to, from;
  for_each_reduced(reduced, [&](Gradient& g, const Tensor& view) {
    if (!g.grad.defined()) return raw::fill_(view, 0);
    to.push_back(view);
    from.push_back(g.grad);
  });
  raw::copy_each_(to, from);
  for_each_reduced(reduced, [&](Gradient& g, const Tensor& view) {
    if (!g.grad.defined()) return;
    check.check(g.index, view);
    if (as_views) g.grad = Tensor();
  });
}

void Bucket::prepare(FiniteCheck& check) {
  for (Gradient& g : gradients) {
    if (!g.grad.defined()) continue;
    check_can_average("backward", "a gradient", g.grad);
    // A module that has been moved since attaching has gradients elsewhere.
    const bool moves = on_gpu() && g.grad.device() != memory.device();
    g.sent =
        !on_gpu() ? on_host(g.grad) : readable(moves ? raw::to(detach(g.grad), memory.device()) : g.grad);
    check.check(g.index, g.sent);
    if (as_views)
      g.grad = Tensor();
    else if (g.ownership == Ownership::kExclusive && g.bytes >= kMinSeparateBytes && g.sent.is_same(g.grad))
      g.ownership = Ownership::kInPlace;
  }
}

void Bucket::unpack(const std::vector<bool>& reduced, std::vector<GradCallback::Delivery>& to) {
  std::vector<Tensor> grads, views;
  for_each_reduced(reduced, [&](Gradient& g, Tensor view) {
    g.sent = Tensor();
    if (g.ownership == Ownership::kInPlace) {
      to.push_back({g.param, std::exchange(g.grad, Tensor())});
    } else if (as_views && g.param.is_row_major() && g.param.device() == memory.device()) {
      to.push_back({g.param, std::move(view), true});
    } else {
      // Reuses the memory of the local gradient if nothing else shares it.
      Tensor grad = g.grad.is_sole_owner() && g.grad.is_dense() ? std::move(g.grad) : empty_like(g.param);
      g.grad = Tensor();
      grads.push_back(grad);
      views.push_back(std::move(view));
      to.push_back({g.param, std::move(grad)});
    }
  });
  raw::copy_each_(grads, views);
}

void divide(const Tensor& sum, int divisor) {
  if (sum.device().type == DeviceType::kCUDA) return raw::copy_(sum, raw::div(sum, double(divisor)));
  finish_reduce(sum.raw_ptr(), sum.numel(), sum.dtype(), ReduceOp::kAvg, divisor);
  sum.storage()->bump_version();
}

Collective bucket_all_reduce(const std::shared_ptr<Bucket>& bucket, ReduceOp op, const Group& group,
                             const std::shared_ptr<const Consensus>& consensus) {
  Collective call{.op = "backward"};
  if (bucket->on_gpu()) {
    call.device = bucket->memory.device();
    call.tensors = {bucket->memory};
    for (const Gradient& g : bucket->gradients)
      if (g.sent.defined()) call.tensors.push_back(g.sent);
  }
  // Runs once the group's earlier collectives have ended. False, on all ranks alike: nothing to reduce.
  call.prepare = [=, size = group.size()](Collective& call) {
    consensus->wait();
    bucket->start = bucket->end = clock_now();
    // Packed small gradients, or a single large one, which is reduced in its own memory if in place. Equal on all ranks
    // but for `data`.
    struct Segment {
      char* data;
      int64_t bytes;
    };
    std::vector<Segment> segments;
    std::vector<Tensor> packed, sent, missing;  // sent[i] goes to packed[i]; zeros to `missing`
    char* const begin = static_cast<char*>(bucket->memory.raw_ptr());
    int64_t bytes = 0;
    bool last_is_packed = false;
    bucket->for_each_reduced(consensus->reduced, [&](const Gradient& g, const Tensor& view) {
      if (g.bytes == 0) return;
      const bool separate = g.bytes >= kMinSeparateBytes, in_place = g.ownership == Ownership::kInPlace;
      char* const data = in_place ? static_cast<char*>(g.sent.raw_ptr()) : begin + bytes;
      bytes += g.bytes;
      if (!in_place) (g.sent.defined() ? packed : missing).push_back(view);
      if (!in_place && g.sent.defined()) sent.push_back(g.sent);
      if (!separate && last_is_packed)
        segments.back().bytes += g.bytes;
      else
        segments.push_back({data, g.bytes});
      last_is_packed = !separate;
    });
    const DType dtype = bucket->dtype();
    const int64_t n = bytes / size_of(dtype);
    if (n == 0) return false;
    const auto pack = [=] {
      for (const Tensor& view : missing) raw::fill_(view, 0);
      copy_row_major(packed, sent);
    };
    if (!bucket->on_gpu()) pack();
    // With joined ranks the divisor may be less than the group's size: sum first, divide afterward.
    const int divisor = consensus->divisor;
    const ReduceOp reduce = op == ReduceOp::kAvg && divisor != size ? ReduceOp::kSum : op;
    call.record = {
        .op = Op::kAllReduce, .reduce = reduce, .dtype = dtype, .ndim = 1, .dims = {n}, .bytes = bytes};
    call.move = [=](MatchedCall& matched) {
      if (bucket->on_gpu()) pack();
      matched.together([&] {
        for (const auto& [data, bytes] : segments)
          matched.data().all_reduce(matched.call, data, data, bytes / size_of(dtype), dtype, reduce);
      });
      if (reduce != op)
        for (const auto& [data, bytes] : segments)
          divide(
              from_blob(data, {bytes / size_of(dtype)}, {.dtype = dtype, .device = bucket->memory.device()}),
              divisor);
      bucket->memory.storage()->bump_version();
      for (const Gradient& g : bucket->gradients)
        if (g.ownership == Ownership::kInPlace) g.sent.storage()->bump_version();
      bucket->end = clock_now();
    };
    return true;
  };
  call.check = [&state = group.state()](const MatchedCall& matched) {
    return find_size_mismatch(matched, state, [](const std::vector<int64_t>& sizes) {
      return sizes.size() == 2 ? concat("bucket ", sizes[1], " of backward ", sizes[0]) : "nonsense";
    });
  };
  return call;
}

}  // namespace gradus::dist::internal
