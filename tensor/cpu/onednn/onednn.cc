// The parts that all oneDNN kernels share: the process's engine, a stream per thread, an LRU cache of
// compiled primitives (plans) that is safe for several threads, execution on the calling thread and OpenMP's
// threads, and copies of weights in oneDNN's layouts, which are cached beside the weights' storage.
#include "gradus/tensor/cpu/onednn/onednn.h"

#include <mutex>
#include <unordered_map>

#include "gradus/tensor/base/lru_cache.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/fork.h"
#include "gradus/tensor/runtime/neighbor.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

// Declared here, so that this file needs no OpenMP compiler flags. oneDNN links the OpenMP library.
extern "C" void omp_set_num_threads(int);

template <> struct std::hash<gradus::onednn::PlanKey> {
  size_t operator()(const gradus::onednn::PlanKey& k) const { return k.hash(); }
};

namespace gradus::onednn {
namespace {

constexpr size_t kMaxPlans = 1024;

// An LRU cache. A plan in use stays alive through its shared_ptr. Never destroyed: kernels may run while the
// program exits.
auto& plan_cache() {
  static auto* cache = new LruCache<PlanKey, PlanPtr, std::unordered_map>(kMaxPlans);
  return *cache;
}

dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

// Copies of a storage's contents in other layouts. They belong to the storage (Storage::kernel_data).
struct ReorderedWeights final : Counted {
  struct Copy {
    int64_t offset;    // of the copied tensor in the storage
    uint32_t version;  // the storage's version when it was copied; of another version, the copy is stale
    Desc layout;
    Tensor bytes;
  };
  std::vector<Copy> copies;
};
// Limits oneDNN to cpu::level(). oneDNN accepts the limit only before it creates its first primitive.
void limit_isa() {
  using dnnl::cpu_isa;
  constexpr cpu_isa kIsa[] = {cpu_isa::sse41, cpu_isa::avx2, cpu_isa::avx512_core, cpu_isa::avx512_core_bf16};
  if (cpu::level() < cpu::processor_level())
    dnnl::set_max_cpu_isa(kIsa[size_t(cpu::level()) - size_t(cpu::Level::kSse41)]);
}

std::mutex reordered_mutex;  // guards Storage::kernel_data of all storages

}  // namespace

dnnl::engine& engine() {
  static auto* e = [] {
    limit_isa();
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *e;
}

int apply_num_threads() {
#ifdef GRADUS_NO_OPENMP
  const int n = 1;
#else
  const int n = num_threads();
  if (n > 1) internal::record_openmp_team();
  internal::has_cpu_contention(
      n);  // its side effect: idle OpenMP threads sleep while another process is busy
#endif
  omp_set_num_threads(n);  // a setting of this thread; other code may have changed it since the last call
  return n;
}

bool supports_dtype(DType t) {
  static const bool has_bf16 = [] {
    if (!cpu::has_avx512_bf16()) return false;  // also excludes ARM, whose ISA constants have the same values
    engine();
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    const auto needed = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
    return (isa & needed) == needed;
  }();
  return t == DType::kF32 || (t == DType::kBF16 && has_bf16);
}

std::string_view implementation_name(const dnnl::primitive& primitive) {
  const char* name = nullptr;
  dnnl_primitive_desc_query(primitive.get_primitive_desc(), dnnl_query_impl_info_str, 0, &name);
  return name ? name : "";
}

PlanPtr find_plan(const PlanKey& key) { return plan_cache().find(key); }

PlanPtr store_plan(const PlanKey& key, Plan plan) {
  return plan_cache().insert(key, std::make_shared<const Plan>(std::move(plan)));
}

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Tensor scratch(const Desc& d) { return empty({int64_t(d.get_size())}, {DType::kU8}); }

// Runs the primitive synchronously. Arguments with empty memory are left out.
// Errors: InternalError.
static void execute(const Plan& plan, std::initializer_list<Arg> args) {
  std::array<dnnl_exec_arg_t, 12> list;
  int n = 0;
  for (const Arg& a : args)
    if (a.memory) list[n++] = {a.index, a.memory.get()};
  Tensor bytes;
  dnnl::memory pad;
  if (plan.scratchpad.get_size() > 0) {
    bytes = scratch(plan.scratchpad);
    pad = memory(plan.scratchpad, bytes);
    list[n++] = {DNNL_ARG_SCRATCHPAD, pad.get()};
  }
  const dnnl_status_t status = dnnl_primitive_execute(plan.primitive.get(), stream().get(), n, list.data());
  if (status != dnnl_success) throw InternalError("oneDNN: execution failed with status ", int(status));
}

void run(const Plan& plan, std::initializer_list<Arg> args) {
  apply_num_threads();
  if (observer()) report_algorithm(implementation_name(plan.primitive));
  execute(plan, args);
}

void reorder(const dnnl::memory& from, const dnnl::memory& to) {
  // A reorder may use one thread while another process is busy: its result does not depend on the number of
  // threads.
  if (internal::has_cpu_contention(apply_num_threads())) omp_set_num_threads(1);
  Plan plan;
  const dnnl::reorder::primitive_desc pd(engine(), from.get_desc(), engine(), to.get_desc(),
                                         user_scratchpad());
  plan.primitive = dnnl::reorder(pd);
  plan.scratchpad = pd.scratchpad_desc();
  execute(plan, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

bool should_cache_reordered(const Tensor& w) {
  // On a queued device a storage's version changes when a write is queued, before the contents do.
  const Context& context = Context::current();
  return w.device() == kCPU && context.recordings.empty() && !context.running_node &&
         !context.replays_training;
}

dnnl::memory reorder_weights(const Tensor& w, const Desc& plain, const Desc& layout, Tensor& owner) {
  if (plain == layout) return memory(plain, w);
  const bool keep = should_cache_reordered(w);
  const uint32_t version = w.storage()->version();
  const int64_t offset = w.impl().offset;
  if (keep) {
    std::lock_guard lock(reordered_mutex);
    if (auto* r = static_cast<ReorderedWeights*>(w.storage()->kernel_data.get()))
      for (const auto& c : r->copies)
        if (c.version == version && c.offset == offset && c.layout == layout)
          return memory(layout, owner = c.bytes);
  }
  owner = scratch(layout);
  dnnl::memory to = memory(layout, owner);
  if (!copy_filters(w, layout, owner)) reorder(memory(plain, w), to);
  if (keep) {
    std::lock_guard lock(reordered_mutex);
    Ref<Counted>& kernel_data = w.storage()->kernel_data;
    if (!kernel_data) kernel_data = make_ref<ReorderedWeights>();
    auto& copies = static_cast<ReorderedWeights*>(kernel_data.get())->copies;
    std::erase_if(copies, [&](const auto& c) { return c.version != version; });
    copies.push_back({offset, version, layout, owner});
  }
  return to;
}

}  // namespace gradus::onednn
