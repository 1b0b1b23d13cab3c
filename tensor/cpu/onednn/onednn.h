// Common parts of the kernels that use oneDNN: engine, an LRU cache of primitives, scratch memory, and cached
// copies of weights in oneDNN's layouts.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <memory>
#include <string_view>

#include "gradus/tensor/tensor.h"

namespace gradus::onednn {

using Desc = dnnl::memory::desc;

// Whether oneDNN has optimized f32 matrix products for this architecture. On ARM without 512-bit SVE they are
// plain loops with 6 times as many instructions as Eigen's.
#if defined(__x86_64__)
inline constexpr bool kHasFastMatmul = true;
#else
inline constexpr bool kHasFastMatmul = false;
#endif

// Returns the CPU engine of the process.
dnnl::engine& engine();
// Sets the number of threads that oneDNN uses on the calling thread to num_threads(), and returns it.
int apply_num_threads();

// A compiled primitive with the memory layouts that it expects.
struct Plan {
  dnnl::primitive primitive;
  Desc src, weights, bias, dst, scratchpad;
  Desc plain_weights;  // layout of the weight tensor, which reorder_weights() reorders to `weights`
};

// The cache key of a plan: all sizes, strides, options and the number of threads on which it depends, as integers.
class PlanKey {
 public:
  // `kind` is the address of a static object that belongs to one op, so keys of different ops are never equal.
  explicit PlanKey(const char* kind) { add(reinterpret_cast<int64_t>(kind)), add(apply_num_threads()); }
  PlanKey& add(int64_t v) {
    if (size_ == int(values_.size())) throw InternalError("PlanKey: too long");
    values_[size_++] = v;
    return *this;
  }
  PlanKey& add(const Dims& d) {
    add(d.size());
    for (int64_t v : d) add(v);
    return *this;
  }
  bool operator==(const PlanKey& o) const {
    return size_ == o.size_ && std::equal(values_.begin(), values_.begin() + size_, o.values_.begin());
  }
  size_t hash() const {  // FNV-1a
    uint64_t h = 0xcbf29ce484222325u;
    for (int i = 0; i < size_; ++i) h = (h ^ uint64_t(values_[i])) * 0x100000001b3u;
    return h ^ (h >> 29);
  }

 private:
  std::array<int64_t, 48> values_;
  int size_ = 0;
};

using PlanPtr = std::shared_ptr<const Plan>;
// Returns the cached plan, or null.
PlanPtr find_plan(const PlanKey& key);
// Stores a plan and returns it, or the plan that another thread stored first.
PlanPtr store_plan(const PlanKey& key, Plan plan);

// Returns whether oneDNN computes fast in this dtype: f32 always, bf16 on processors with AVX512_BF16. Without
// these instructions oneDNN's bf16 takes 6 times as long as f32.
bool supports_dtype(DType t);
// Returns oneDNN's name of an implementation, such as "jit:avx512_core". Names of reference code begin with "ref".
std::string_view implementation_name(const dnnl::primitive& primitive);
inline dnnl::memory::data_type type_of(DType t) {
  return t == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Returns the plan for `key` and dtype t, created by make() on first use. Two threads may create the same plan at
// the same time; both then use the one that is stored first. Returns null if the caller must compute in f32
// instead: oneDNN does not compute in t, or has only reference code for this problem. Failures are cached too.
// Errors: InternalError if oneDNN cannot create an f32 primitive.
template <class Make> PlanPtr find_or_create_plan(DType t, PlanKey key, Make make) {
  const bool is_bf16 = t != DType::kF32;
  if (is_bf16 && !supports_dtype(t)) return nullptr;
  key.add(int64_t(t));
  PlanPtr p = find_plan(key);
  if (!p) {
    Plan made;
    try {
      made = make();
      if (is_bf16 && implementation_name(made.primitive).starts_with("ref")) made = {};
    } catch (const dnnl::error& e) {
      if (!is_bf16 || e.status != dnnl_unimplemented) throw InternalError("oneDNN: ", e.what());
    }
    p = store_plan(key, std::move(made));
  }
  return p->primitive ? p : nullptr;
}

// Returns attributes with scratchpad_mode::user: the caller supplies scratch memory at execution.
dnnl::primitive_attr user_scratchpad();

// Returns x's data, not owned, as oneDNN memory, or an empty object for an undefined x.
inline dnnl::memory memory(const Desc& d, const Tensor& x) {
  return x.defined() ? dnnl::memory(d, engine(), x.raw_ptr()) : dnnl::memory();
}

// Runs the plan's primitive with these arguments and scratch memory.
struct Arg {
  int index;
  dnnl::memory memory;
};
void run(const Plan& plan, std::initializer_list<Arg> args);

// Copies `from` into the layout of `to`.
void reorder(const dnnl::memory& from, const dnnl::memory& to);

// Returns uninitialized bytes for a memory of this layout.
Tensor scratch(const Desc& d);

// Returns whether a reordered copy of w would be cached: only outside of recordings and backward passes. In
// training w changes before a copy could be used again.
bool should_cache_reordered(const Tensor& w);

// Returns `w`, whose layout is `plain`, in `layout`. If should_cache_reordered(w), the reordered copy is cached
// beside w's storage until its version changes. `owner` owns the returned memory and must outlive it.
dnnl::memory reorder_weights(const Tensor& w, const Desc& plain, const Desc& layout, Tensor& owner);

// Copies the row-major filters w into `to` in the blocked layout of one of oneDNN's AVX-512 kernels and returns
// true. Returns false, without a copy, if the layout, dtype or processor is not supported. Faster than oneDNN's
// reorder if w is not in a cache.
bool copy_filters(const Tensor& w, const Desc& layout, const Tensor& to);

}  // namespace gradus::onednn
