// Bucket: packs gradients into contiguous memory (row-major views, one after the other), all-reduces them,
// and unpacks the results. pack serves comm hooks, prepare and bucket_all_reduce serve the default
// all-reduce, which packs when the collective starts: only then the Consensus, the ranks' agreement on the
// gradients to reduce, is known. `reduced` has one flag per attached tensor, equal on all ranks. A gradient
// with the flag that this rank lacks is sent as zeros. Gradients on a GPU are copied to the host, and the results back.
#include "gradus/distributed/data_parallel/internal/bucket.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "gradus/distributed/group/collective_argument.h"
#include "gradus/tensor/ops/concat.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::dist::internal {

bool Bucket::is_reduced(const std::vector<bool>& reduced) const {
  return std::ranges::any_of(gradients, [&](const Gradient& g) { return reduced[g.index]; });
}

void Bucket::allocate(const Tensor& reusable) {
  int64_t numel = 0;
  for (const Gradient& g : gradients) numel += g.param.numel();
  const bool reuse =
      reusable.defined() && reusable.dtype() == dtype() && reusable.storage()->use_count() == 1;
  memory = reuse ? reusable : empty({numel}, {.dtype = dtype()});
}

Tensor Bucket::view(int64_t offset, const Shape& shape) const {
  Strides strides = Strides::filled(shape.size(), 1);
  for (int d = shape.size() - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * std::max<int64_t>(shape[d + 1], 1);
  return view_as_strided(memory, shape, strides, offset);
}

void Bucket::pack(const std::vector<bool>& reduced, FiniteCheck& check) {
  for_each_reduced(reduced, [&](Gradient& g, const Tensor& view) {
    if (!g.grad.defined()) return raw::fill_(view, 0);
    raw::copy_(view, g.grad);
    check.check(g.index, view);
    if (as_views) g.grad = Tensor();
  });
}

void Bucket::prepare(FiniteCheck& check) {
  for (Gradient& g : gradients) {
    if (!g.grad.defined()) continue;
    check_can_average("backward", "a gradient", g.grad);  // the module may have been moved since attaching
    if (g.grad.device().type != DeviceType::kCUDA) g.sent = on_host(g.grad);
  }
  copy_to_host();
  for (Gradient& g : gradients) {
    if (!g.grad.defined()) continue;
    check.check(g.index, g.grad.device().type == DeviceType::kCUDA ? g.grad : g.sent);
    if (as_views)
      g.grad = Tensor();
    else if (g.ownership == Ownership::kExclusive && g.bytes >= kMinSeparateBytes && g.sent.is_same(g.grad))
      g.ownership = Ownership::kInPlace;
  }
}

void Bucket::copy_to_host() {
  std::map<int, std::vector<Gradient*>> by_device;
  for (Gradient& g : gradients)
    if (g.grad.defined() && g.grad.device().type == DeviceType::kCUDA)
      by_device[g.grad.device().index].push_back(&g);
  for (const auto& [device, staged] : by_device) {
    std::vector<Tensor> flat;
    for (const Gradient* g : staged)
      flat.push_back(raw::reshape(raw::contiguous(detach(g->grad)), {g->grad.numel()}));
    const Tensor all = raw::cat(flat, 0), host = raw::queue_to_host(all);
    copied.push_back(Event::record(current_stream(all.device())));
    int64_t offset = 0;
    for (Gradient* g : staged) {
      g->sent = view_as_strided(host, g->grad.shape(), row_major_strides(g->grad.shape()), offset);
      offset += g->grad.numel();
    }
  }
}

// Polls, so that a core is free meanwhile: the backward goes on.
void Bucket::wait_for_copies(const World* world) {
  try {
    if (previous && previous->error) std::rethrow_exception(previous->error);
    for (const Event& event : copied) {
      while (!event.done()) {
        if (world) world->membership->check("backward");
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
      event.synchronize();  // throws errors of kernels
    }
    previous = nullptr;
  } catch (...) {
    error = std::current_exception();
    throw;
  }
}

void Bucket::unpack(const std::vector<bool>& reduced, std::vector<GradCallback::Delivery>& to) {
  for_each_reduced(reduced, [&](Gradient& g, Tensor view) {
    g.sent = Tensor();
    if (g.ownership == Ownership::kInPlace) {
      to.push_back({g.param, std::exchange(g.grad, Tensor())});
    } else if (as_views && g.param.is_row_major() && g.param.device() == kCPU) {
      to.push_back({g.param, std::move(view), true});
    } else {
      // Reuses the memory of the local gradient if nothing else shares it.
      Tensor grad = g.grad.is_sole_owner() && g.grad.is_dense() ? std::move(g.grad) : empty_like(g.param);
      g.grad = Tensor();
      raw::copy_(grad, view);
      to.push_back({g.param, std::move(grad)});
    }
  });
}

Collective bucket_all_reduce(const std::shared_ptr<Bucket>& bucket, ReduceOp op, const Group& group,
                             const std::shared_ptr<const Consensus>& consensus) {
  Collective call{.op = "backward"};
  const DeviceType device = bucket->gradients[0].param.device().type;
  const World* const world = group.state().world();
  // Runs once the group's earlier collectives have ended. False, on all ranks alike: nothing to reduce.
  call.prepare = [=, size = group.size()](Collective& call) {
    consensus->wait();
    bucket->wait_for_copies(world);
    bucket->start = bucket->end = clock_now();
    // Segments {data, bytes}, each reduced by one call: packed small gradients, or a single large gradient,
    // which is reduced in its own memory if in place.
    std::vector<std::pair<char*, int64_t>> segments;
    const Tensor& x = bucket->memory;
    char* const begin = static_cast<char*>(x.raw_ptr());
    char* end = begin;
    bool last_is_packed = false;
    for (const Gradient& g : bucket->gradients) {
      if (!consensus->reduced[g.index] || g.bytes == 0) continue;
      const bool separate = g.bytes >= kMinSeparateBytes;
      char* data = end;
      end += g.bytes;
      if (g.ownership == Ownership::kInPlace)
        data = static_cast<char*>(g.sent.raw_ptr());
      else if (g.sent.defined())
        std::memcpy(data, g.sent.raw_ptr(), size_t(g.bytes));
      else
        std::memset(data, 0, size_t(g.bytes));
      if (!separate && last_is_packed)
        segments.back().second += g.bytes;
      else
        segments.emplace_back(data, g.bytes);
      last_is_packed = !separate;
    }
    const int64_t bytes = end - begin, n = bytes / size_of(x.dtype());
    if (n == 0) return false;
    // With joined ranks the divisor may be less than the group's size: sum first, divide afterward.
    const int divisor = consensus->divisor;
    const ReduceOp reduce = op == ReduceOp::kAvg && divisor != size ? ReduceOp::kSum : op;
    call.record = {.op = Op::kAllReduce,
                   .reduce = reduce,
                   .dtype = x.dtype(),
                   .ndim = 1,
                   .device = device,
                   .dims = {n},
                   .bytes = bytes};
    call.move = [=](MatchedCall& matched) {
      const DType dtype = bucket->memory.dtype();
      for (const auto& [data, bytes] : segments) {
        const int64_t count = bytes / size_of(dtype);
        matched.backend.all_reduce(matched.call, data, data, count, dtype, reduce);
        if (reduce != op) finish_reduce(data, count, dtype, op, divisor);
      }
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
