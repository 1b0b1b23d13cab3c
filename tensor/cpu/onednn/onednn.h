// What all oneDNN kernels share: engine and stream, a bounded cache of ready primitives, scratch memory, and
// weights in oneDNN's own layouts.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <memory>

#include "gradus/tensor/tensor.h"

namespace gradus::onednn {

using Desc = dnnl::memory::desc;

dnnl::engine& engine();
// Sets the number of threads that oneDNN uses on the calling thread to num_threads(), and returns it.
int use_threads();

// A ready primitive, and the layouts it was made for.
struct Plan {
  dnnl::primitive primitive;
  Desc src, weights, bias, dst, scratchpad;
  Desc plain_weights;  // how Gradus keeps what the primitive wants as `weights`
};

// Everything that a plan depends on, as numbers.
class PlanKey {
 public:
  // `kind` is the address of a kernel's own constant, so that kernels cannot collide.
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
  PlanKey& add(Size2 s) { return add(s.h).add(s.w); }
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

// Returns the plan of `key`, made on first use. Two threads may make the same plan; the first one
// kept serves both.
template <class Make>
PlanPtr plan_for(const PlanKey& key, Make make) {
  if (PlanPtr p = find_plan(key)) return p;
  try {
    return keep_plan(key, make());
  } catch (const dnnl::error& e) {
    throw InternalError("oneDNN: ", e.what());
  }
}

// Whether oneDNN has kernels for this dtype on this processor: f32 everywhere, bf16 with AVX-512.
bool computes_in(DType t);
// Whether oneDNN serves the problem by its slow reference code.
bool is_reference(const_dnnl_primitive_desc_t pd);
inline dnnl::memory::data_type type_of(DType t) {
  return t == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Like plan_for, for problems in any dtype; null where f32 has to serve: oneDNN does not compute in this
// dtype, or has only reference code for this problem.
template <class Make>
PlanPtr plan_in(DType t, PlanKey key, Make make) {
  if (t == DType::kF32) return plan_for(key, make);
  if (!computes_in(t)) return nullptr;
  key.add(int64_t(t));
  PlanPtr p = find_plan(key);
  if (!p) {
    Plan made;
    try {
      made = make();
      if (is_reference(made.primitive.get_primitive_desc())) made = {};
    } catch (const dnnl::error& e) {
      if (e.status != dnnl_unimplemented) throw InternalError("oneDNN: ", e.what());
    }
    p = keep_plan(key, std::move(made));
  }
  return p->primitive ? p : nullptr;
}

// An attribute that lets scratch memory come from our allocator.
dnnl::primitive_attr user_scratchpad();

inline dnnl::memory memory(const Desc& d, void* p) { return dnnl::memory(d, engine(), p); }
inline dnnl::memory memory(const Desc& d, const Tensor& x) { return memory(d, x.raw_ptr()); }

// Runs the plan's primitive with these arguments and scratch memory.
struct Arg {
  int index;
  dnnl::memory memory;
};
void run(const Plan& plan, std::initializer_list<Arg> args);

// Copies `from` into the layout of `to`.
void reorder(const dnnl::memory& from, const dnnl::memory& to);

// A tensor of raw bytes for a memory of this layout.
Tensor scratch(const Desc& d);

// Whether a reordered copy of w would stay: outside of recordings and backward. In training each layout
// serves once before an update, so that copies would only take memory.
bool keeps_reordered(const Tensor& w);

// Returns `w`, which lies as `plain`, in the layout `want`. If it is kept, the reordered
// copy stays with w's storage until its contents change, so an unchanged weight is reordered once. `hold`
// keeps the bytes alive for the call.
dnnl::memory weights_as(const Tensor& w, const Desc& plain, const Desc& want, Tensor& hold);

}  // namespace gradus::onednn
