// Autocast scopes (as torch.autocast), the cache of cast parameters, and the node that records a cast. The
// innermost scope is the thread's Context::autocast, an AutocastScope or null. `raw::` ops are not recorded.
#include "gradus/autograd/graph/autocast.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/graph/recording_state.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {
namespace autograd {
namespace {

// Note [Cached casts]
// A parameter is cast once per version of its storage. The storage owns the cached result, so both are freed
// together. The scope has a weak reference and frees the result when the scope ends. The cached tensor has no
// slot (position in the autograd graph): every use records a cast node of its own. A first use without a
// recording therefore does not disable gradients, and the gradients of several uses are summed in the
// parameter's dtype.
struct CachedCast {
  DType dtype{};         // of the result
  uint32_t version = 0;  // of the storage that was cast
  Shape shape;           // with strides and offset: the view of the storage that was cast
  Strides strides;
  int64_t offset = 0;
  Stream stream;         // of the cast; only this stream may read the result without waiting for an event
  uint64_t capture = 0;  // capture_id() at the cast
  Tensor result;         // undefined once the scope has ended
  bool is_used = false;  // an op asked for the result

  // Returns whether the last cast was one of this view to this dtype, of any version.
  bool was_cast_of(const Tensor& x, DType to) const {
    return dtype == to && offset == x.impl().offset && shape == x.shape() && strides == x.strides();
  }
  // `now`: the current version of x's storage.
  bool is_cast_of(const Tensor& x, uint32_t now, DType to) const {
    return result.defined() && was_cast_of(x, to) && version == now && stream == current_stream(x.device()) &&
           capture == capture_id();
  }
};

// The value of Storage::autograd_data, the storage's field for cached data.
struct CastOnStorage final : Counted {
  std::shared_ptr<CachedCast> cached = std::make_shared<CachedCast>();
};

uint32_t version_of(const Tensor& x) { return x.storage()->version(); }

std::mutex cache_mutex;  // guards every storage's CachedCast, its content, and the scopes' lists

// The state of an Autocast scope, for one dtype.
class AutocastScope final : public Counted {
 public:
  explicit AutocastScope(DType dtype) : dtype(dtype) {}

  // Returns x in the scope's dtype, without a slot, from the cache or into it.
  Tensor cast(const Tensor& x) {
    {
      std::lock_guard lock(cache_mutex);
      if (CachedCast* cached = cached_on(x); cached && cached->is_cast_of(x, version_of(x), dtype)) {
        cached->is_used = true;
        return cached->result;
      }
    }
    const std::vector<Tensor> sources = to_cast_with(x);
    std::vector<uint32_t> versions;
    for (const Tensor& source : sources) versions.push_back(version_of(source));
    const std::vector<Tensor> results =
        sources.size() > 1 ? raw::round_all(sources, dtype) : std::vector{raw::to(x, dtype)};
    std::lock_guard lock(cache_mutex);
    for (size_t i = 0; i < sources.size() && !ended_; ++i)
      cache_cast(sources[i], versions[i], results[i], /*is_used=*/i == 0);
    return results[0];
  }

  // Frees the cached casts of this scope.
  void end() {
    std::vector<Tensor> freed;  // destroyed after the lock is released
    std::lock_guard lock(cache_mutex);
    ended_ = true;
    for (const auto& weak : casts_)
      if (auto cached = weak.lock()) freed.push_back(std::exchange(cached->result, {}));
    casts_.clear();
  }

  const DType dtype;

 private:
  // Returns x's entry, or null. The caller has locked cache_mutex.
  static CachedCast* cached_on(const Tensor& x) {
    const auto* on_storage = dynamic_cast<CastOnStorage*>(x.storage()->autograd_data.get());
    return on_storage ? on_storage->cached.get() : nullptr;
  }

  // Returns x and the tensors to cast in the same launch: on a GPU, the other parameters of x's recording whose
  // last cast an op used, as it will in a step like the last one. Excluded are parameters that another stream
  // used, and those in memory of others: a write there may be queued on a stream that this one waits for only
  // when an op uses the parameter.
  std::vector<Tensor> to_cast_with(const Tensor& x) const {
    const auto is_ready = [&](const Tensor& p) {
      return p.device() == x.device() && p.dtype() == DType::kF32 && p.is_dense() &&
             !p.storage()->is_external() && !is_used_on_other_streams(p.device(), p.storage()->data());
    };
    std::vector<Tensor> all = {x};
    if (x.device().type != DeviceType::kCUDA || !is_ready(x)) return all;
    const Ref<RecordingState> recording = innermost_following(x);
    if (!recording) return all;
    std::vector<Tensor> others;
    for (const Ref<AutogradSlot>& slot : recording->leaves()) {
      const Tensor p = slot->is_leaf() ? static_cast<const Leaf*>(slot.get())->tensor() : Tensor();
      if (p.defined() && !p.is_same(x) && is_ready(p)) others.push_back(p);
    }
    std::lock_guard lock(cache_mutex);
    for (const Tensor& p : others) {
      const CachedCast* cached = cached_on(p);
      if (cached && cached->is_used && cached->was_cast_of(p, dtype) &&
          !cached->is_cast_of(p, version_of(p), dtype))
        all.push_back(p);
    }
    return all;
  }

  // Caches the cast of x. The caller has locked cache_mutex.
  void cache_cast(const Tensor& x, uint32_t version, const Tensor& result, bool is_used) {
    Ref<Counted>& slot = x.storage()->autograd_data;
    if (!slot) slot = make_ref<CastOnStorage>();
    const auto* on_storage = dynamic_cast<CastOnStorage*>(slot.get());
    if (!on_storage) return;  // Storage::autograd_data has another use: a GradScaler's gradient, or mark_ones
    const auto& cached = on_storage->cached;
    *cached = {dtype,        version, x.shape(), x.strides(), x.impl().offset, current_stream(x.device()),
               capture_id(), result,  is_used};
    casts_.insert(cached);
    if (casts_.size() < 2 * alive_) return;
    std::erase_if(casts_, [](const auto& c) { return c.expired(); });
    alive_ = std::max<size_t>(casts_.size(), 64);
  }

  bool ended_ = false;  // threads that inherited the scope still cast, but cache nothing
  std::set<std::weak_ptr<CachedCast>, std::owner_less<>> casts_;
  size_t alive_ = 64;  // size of casts_ after entries of freed parameters were last removed, at least 64
};

AutocastScope* as_scope(const Ref<Counted>& scope) { return static_cast<AutocastScope*>(scope.get()); }

bool can_cast(const Tensor& x) { return x.defined() && is_floating(x.dtype()) && x.dtype() != DType::kF64; }

// A recorded cast. Passes the gradient on unchanged; the engine converts it to the operand's dtype.
class CastNode final : public Node {
 public:
  explicit CastNode(DType wide) : Node("to"), wide_(wide) {}
  void run(const RuleArgs& args) override { args.dxs[0] = std::move(args.dys[0]); }
  void drop(std::span<const char>) override {}
  DType gradient_dtype(size_t) const override { return wide_; }

 private:
  const DType wide_;
};

// Returns x in another dtype, differentiably. With `keep` the cast is cached, see Note [Cached casts].
Tensor recorded_cast(const Tensor& x, DType dtype, const Ref<Counted>& scope, bool keep) {
  if (!can_cast(x) || x.dtype() == dtype) return x;
  Tensor y = keep && dtype == as_scope(scope)->dtype ? detach(as_scope(scope)->cast(x)) : raw::to(x, dtype);
  if (Recorder r{"to", x})
    r.attach(Ref<Node>(new CastNode(promote(x.dtype(), dtype))), {&y, 1}, {r.edge_to(x)});
  return y;
}

}  // namespace

DType gradient_dtype(const Tensor& x) {
  const auto& slot = x.ref()->slot;
  if (!slot || slot->is_leaf()) return x.dtype();
  return static_cast<const Node*>(slot.get())->gradient_dtype(x.ref()->slot_index);
}

// Suspends the open scope, which must exist, and sets dtype_: kLow: the scope's dtype; kWidest: the promotion
// of the floating-point operands' dtypes; otherwise dtype_ keeps its default, f32.
void Casting::begin(CastPolicy policy, std::span<const Tensor* const> operands) {
  scope_ = std::exchange(Context::current().autocast, nullptr);
  if (policy == CastPolicy::kLow) dtype_ = as_scope(scope_)->dtype;
  if (policy != CastPolicy::kWidest) return;
  bool any = false;
  for (const Tensor* x : operands)
    if (x->defined() && is_floating(x->dtype()))
      dtype_ = std::exchange(any, true) ? promote(dtype_, x->dtype()) : x->dtype();
}

Casting::Casting(CastOp op, const std::vector<Tensor>& operands) {
  if (!Context::current().autocast) return;
  std::vector<const Tensor*> all;
  for (const Tensor& x : operands) all.push_back(&x);
  begin(op.policy(), all);
}

Tensor Casting::operator()(const Tensor& x) const {
  const bool is_leaf = x.defined() && x.ref()->slot && x.ref()->slot->is_leaf();
  return recorded_cast(x, dtype_, scope_, is_leaf);
}

std::vector<Tensor> Casting::operator()(const std::vector<Tensor>& xs) const {
  std::vector<Tensor> cast;
  cast.reserve(xs.size());
  for (const Tensor& x : xs) cast.push_back((*this)(x));
  return cast;
}

// Also caches the cast of a tensor without a slot: a parameter outside of any recording.
Tensor Casting::weight(const Tensor& x) const {
  const bool was_computed = x.defined() && x.ref()->slot && !x.ref()->slot->is_leaf();
  return recorded_cast(x, dtype_, scope_, !was_computed);
}

}  // namespace autograd

Autocast::Autocast(DType dtype, AutocastOptions options) : outer_(Context::current().autocast) {
  if (dtype != DType::kBF16 && dtype != DType::kF16)
    throw DTypeError("autocast", "expected bf16 or f16, got ", dtype);
  // A nested scope of the same dtype shares the outer scope's state and cache.
  Ref<Counted>& scope = Context::current().autocast;
  if (!options.enabled) {
    scope = nullptr;
  } else if (!scope || autograd::as_scope(scope)->dtype != dtype) {
    scope = make_ref<autograd::AutocastScope>(dtype);
    owns_cache_ = true;
  }
}

Autocast::~Autocast() {
  Ref<Counted> scope = std::exchange(Context::current().autocast, std::move(outer_));
  if (owns_cache_) autograd::as_scope(scope)->end();
}

std::optional<DType> autocast_dtype() {
  const Ref<Counted>& scope = Context::current().autocast;
  return scope ? std::optional(autograd::as_scope(scope)->dtype) : std::nullopt;
}

}  // namespace gradus
