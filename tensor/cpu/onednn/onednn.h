// What all oneDNN kernels share: engine and stream, a bounded cache of ready primitives, scratch memory, and
// weights in oneDNN's own layouts.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <memory>
#include <string_view>

#include "gradus/tensor/tensor.h"

namespace gradus::onednn {

using Desc = dnnl::memory::desc;

// Whether oneDNN has kernels for this family of processors. On ARM its f32 products are plain loops, unless
// SVE has 512 bits: one of 1024x384 by 384x384 takes 350 million instructions, and Eigen's 58 million.
#if defined(__x86_64__)
inline constexpr bool kHasFastProducts = true;
#else
inline constexpr bool kHasFastProducts = false;
#endif

dnnl::engine& engine();
// Sets the number of threads that oneDNN uses on the calling thread to num_threads(), and returns it.
int use_threads();

// A ready primitive, and the layouts for which it was made.
struct Plan {
  dnnl::primitive primitive;
  Desc src, weights, bias, dst, scratchpad;
  Desc plain_weights;  // Gradus's layout of the tensor that the primitive takes as `weights`
};

// Everything that a plan depends on, as numbers.
class PlanKey {
 public:
  // `kind` is the address of a constant that only one kernel has, so keys of different kernels never collide.
  explicit PlanKey(const char* kind) { add(reinterpret_cast<int64_t>(kind)), add(use_threads()); }
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
  size_t hash() const;

 private:
  std::array<int64_t, 48> values_;
  int size_ = 0;
};

using PlanPtr = std::shared_ptr<const Plan>;
PlanPtr find_plan(const PlanKey& key);
PlanPtr keep_plan(const PlanKey& key, Plan plan);

// Returns whether oneDNN has kernels for this dtype on this processor: for f32 always, for bf16 where
// the processor multiplies bf16: without, oneDNN's bf16 takes 6 times as long as f32.
bool computes_in(DType t);
// Returns oneDNN's name of an implementation, "jit:avx512_core". The slow ones begin with "ref".
std::string_view implementation(const dnnl::primitive& primitive);
inline dnnl::memory::data_type type_of(DType t) {
  return t == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Returns the plan of `key` for a problem in a dtype, and makes it on first use. Two threads may make the
// same plan at once; the first one to be stored then serves both. Returns null where the caller must compute
// in f32: oneDNN does not compute in this dtype, or has only reference code for this problem.
template <class Make> PlanPtr plan_in(DType t, PlanKey key, Make make) {
  const bool narrow = t != DType::kF32;
  if (narrow && !computes_in(t)) return nullptr;
  key.add(int64_t(t));
  PlanPtr p = find_plan(key);
  if (!p) {
    Plan made;
    try {
      made = make();
      if (narrow && implementation(made.primitive).starts_with("ref")) made = {};
    } catch (const dnnl::error& e) {
      if (!narrow || e.status != dnnl_unimplemented) throw InternalError("oneDNN: ", e.what());
    }
    p = keep_plan(key, std::move(made));
  }
  return p->primitive ? p : nullptr;
}

// Returns attributes by which oneDNN takes its scratch memory from the caller.
dnnl::primitive_attr user_scratchpad();

// Returns no memory for an undefined x.
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

// Returns whether a reordered copy of w would be kept: outside of recordings and backward. In training each
// layout is used once before the next update, so copies would only take memory.
bool keeps_reordered(const Tensor& w);

// Returns `w`, whose layout is `plain`, in the layout `want`. Where keeps_reordered(w), the reordered copy
// stays with w's storage until its contents change, so an unchanged weight is reordered once. `hold` keeps
// the returned bytes alive.
dnnl::memory weights_as(const Tensor& w, const Desc& plain, const Desc& want, Tensor& hold);

}  // namespace gradus::onednn
