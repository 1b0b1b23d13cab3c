// Entry points of the emulated cuBLASLt: descriptors, the heuristic, and products, which are checked and
// queued on a stream. Statuses are those of the documentation and of an H100 (tests/cublaslt_answers.txt).
#include "gradus/tools/cuda_emulator/libraries/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/cublas/cublaslt_functions.h"
#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/libraries/library_operand.h"

struct cublasLtContext {
  int device;
};

namespace gradus::cuda::emulated {

namespace {

using Field = std::span<std::byte>;
template <class T> Field field(T& value) { return std::as_writable_bytes(std::span(&value, 1)); }

// Returns the bytes of an attribute in a descriptor; empty if the attribute is unknown or not emulated.
Field find(MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return field(desc.compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return field(desc.scale);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return field(desc.op_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return field(desc.op_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return field(desc.epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return field(desc.bias);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return field(desc.bias_type);
    default:
      return {};
  }
}
Field find(MatrixLayout& layout, cublasLtMatrixLayoutAttribute_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return field(layout.type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return field(layout.order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return field(layout.rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return field(layout.cols);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return field(layout.ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return field(layout.batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return field(layout.stride);
    default:
      return {};
  }
}
Field find(MatmulPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return field(preference.workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return field(preference.reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return field(preference.alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return field(preference.alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return field(preference.alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return field(preference.alignments[3]);
    default:
      return {};
  }
}

// The library's opaque structures contain the emulator's descriptors.
template <class Ours, class Opaque> Ours& ours(Opaque* opaque) {
  static_assert(sizeof(Ours) <= sizeof(Opaque) && std::is_trivially_copyable_v<Ours>);
  return *reinterpret_cast<Ours*>(opaque);
}

// Runs f with the runtime's lock, unless a test injected a failure (fail_call).
template <class F> cublasStatus_t host_call(cublasStatus_t failure, const char* function, F&& f) {
  const auto lock = Runtime::get().lock();
  if (const int status = injected_failure(function, failure)) return static_cast<cublasStatus_t>(status);
  return f();
}
// The same for calls that also fail after an error of the device, and in host functions.
template <class F>
cublasStatus_t device_call(cublasStatus_t failure, F&& f, const char* function = __builtin_FUNCTION()) {
  if (in_host_function) return failure;
  Runtime& runtime = Runtime::get();
  const auto lock = runtime.lock();
  if (runtime.sticky != cudaSuccess) return failure;
  if (const int status = injected_failure(function, failure)) return static_cast<cublasStatus_t>(status);
  return f(runtime);
}

size_t descriptors = 0;  // behind the runtime's lock

template <class Ours, class Opaque>
cublasStatus_t create(Opaque** made, const Ours& value, const char* function = __builtin_FUNCTION()) {
  return host_call(CUBLAS_STATUS_ALLOC_FAILED, function, [&] {
    if (!made) return CUBLAS_STATUS_INVALID_VALUE;
    *made = new Opaque;
    new (*made) Ours(value);
    ++descriptors;
    return CUBLAS_STATUS_SUCCESS;
  });
}
template <class Opaque> cublasStatus_t destroy(Opaque* opaque) {
  const auto lock = Runtime::get().lock();
  descriptors -= opaque != nullptr;
  delete opaque;
  return CUBLAS_STATUS_SUCCESS;
}
template <class Ours, class Opaque, class Attribute>
cublasStatus_t set(Opaque* opaque, Attribute attribute, const void* from, size_t bytes,
                   const char* function = __builtin_FUNCTION()) {
  return host_call(CUBLAS_STATUS_INVALID_VALUE, function, [&] {
    if (!opaque || !from) return CUBLAS_STATUS_INVALID_VALUE;
    const Field to = find(ours<Ours>(opaque), attribute);
    if (to.empty() || to.size() != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(to.data(), from, bytes);
    return CUBLAS_STATUS_SUCCESS;
  });
}

// Delivers a fault, for arguments with which the real library crashes or loses the device.
cublasStatus_t refuse(const std::string& what) {
  deliver(library_fault({"cublasLtMatmul", gradus::internal::called_op}, FaultKind::kArgument, what));
  return CUBLAS_STATUS_INVALID_VALUE;
}

// Gathers the descriptors of a product, and checks types and shapes. Without c, the layout of d is used.
cublasStatus_t collect(Product* p, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  if (!desc) return refuse("a null descriptor crashes");
  if (!a || !b || !d) return CUBLAS_STATUS_INVALID_VALUE;
  *p = {ours<MatmulDesc>(desc), ours<MatrixLayout>(a), ours<MatrixLayout>(b), ours<MatrixLayout>(c ? c : d),
        ours<MatrixLayout>(d)};
  return check_product(*p);
}

bool is_aligned(const void* p, size_t to) { return reinterpret_cast<uintptr_t>(p) % to == 0; }

// Returns the alignments in bytes of A, B, C and D that the emulated algorithms require, as those with tensor
// cores do.
std::array<uint32_t, 4> alignments_of(const Product& p) {
  const bool plain = p.d.type == CUDA_R_32F && p.a.type == CUDA_R_32F;
  const uint32_t ab = plain && p.desc.compute != CUBLAS_COMPUTE_32F_FAST_TF32 ? 4 : 16;
  // As recorded, a misaligned f32 result is not refused. It loses the device.
  const uint32_t cd = plain ? 1 : 16;
  return {ab, ab, cd, cd};
}

constexpr size_t kWorkspaceAlignment = 256;
constexpr uint64_t kMaxWorkspace = 64 << 10;

cublasStatus_t plan(const Product& p, const MatmulPreference& preference, int wanted,
                    cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (p.desc.uses_bias() && !is_aligned(p.desc.bias, size_of_element(p.d.type)))
    return CUBLAS_STATUS_INVALID_VALUE;
  MatmulAlgo algo{p.hash(), 0, alignments_of(p), false};
  const uint32_t types[] = {p.a.type, p.b.type, p.c.type, p.d.type};
  for (size_t i = 0; i < 4; ++i) {
    if (preference.alignments[i] < size_of_element(types[i])) return CUBLAS_STATUS_NOT_SUPPORTED;
    algo.alignments[i] = std::min(algo.alignments[i], preference.alignments[i]);
  }
  algo.rounds_parts =
      preference.reductions & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
  // The first algorithm needs workspace if the preference allows it, the second needs none.
  const uint64_t workspace = std::min(kMaxWorkspace, 4 * p.m() * p.n());
  for (const uint64_t bytes : {workspace, uint64_t(0)}) {
    if (bytes > preference.workspace || *count == wanted) continue;
    algo.workspace = bytes;
    results[*count] = {};
    results[*count].workspaceSize = bytes;
    results[*count].wavesCount = 1;
    new (&results[*count].algo) MatmulAlgo(algo);
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}

double number_at(const void* p, int32_t type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(p) : *static_cast<const float*>(p);
}

// Checks the arguments that only cublasLtMatmul() gets: pointers, workspace, algorithm.
cublasStatus_t check_pointers(const QueuedProduct& q, bool has_algo) {
  const MatmulDesc& desc = q.product.desc;
  const Product& p = q.product;
  if ((!q.a || !q.b) && q.alpha == 0) return refuse("null operands lose the device, alpha of 0 or not");
  if (!q.a || !q.b || !q.d || (!q.c && q.beta != 0)) return CUBLAS_STATUS_INVALID_VALUE;
  if (q.c == q.d && p.c != p.d) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc.uses_bias() != (desc.bias != nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  if (desc.uses_bias() && !is_aligned(desc.bias, size_of_element(p.d.type)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (q.workspace_bytes > 0 && (!q.workspace || !is_aligned(q.workspace, kWorkspaceAlignment)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has_algo && q.algo.product != p.hash()) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (q.algo.workspace > q.workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  const void* const pointers[] = {q.a, q.b, q.c, q.d};
  for (size_t i = 0; i < 4; ++i)
    if (!is_aligned(pointers[i], q.algo.alignments[i])) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.n() == 0 || p.d.batch < 1) return CUBLAS_STATUS_EXECUTION_FAILED;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

size_t count_matmul_descriptors() {
  const auto lock = Runtime::get().lock();
  return descriptors;
}

}  // namespace gradus::cuda::emulated

using namespace gradus::cuda::emulated;  // NOLINT

extern "C" {

size_t CUBLASWINAPI cublasLtGetVersion() { return 130100; }

const char* CUBLASWINAPI cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    default:
      return "CUBLAS_STATUS_UNKNOWN";
  }
}

cublasStatus_t CUBLASWINAPI cublasLtCreate(cublasLtHandle_t* handle) {
  return device_call(CUBLAS_STATUS_NOT_INITIALIZED, [&](Runtime&) {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    *handle = new cublasLtContext{current_device};
    return CUBLAS_STATUS_SUCCESS;
  });
}
cublasStatus_t CUBLASWINAPI cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                                     cudaDataType_t scale) {
  return create(made, MatmulDesc{compute, scale});
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }
cublasStatus_t CUBLASWINAPI cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                           cublasLtMatmulDescAttributes_t attribute,
                                                           const void* from, size_t bytes) {
  return set<MatmulDesc>(desc, attribute, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                                       uint64_t rows, uint64_t cols, int64_t ld) {
  return create(made, MatrixLayout{.type = type, .rows = rows, .cols = cols, .ld = ld});
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}
cublasStatus_t CUBLASWINAPI cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                             cublasLtMatrixLayoutAttribute_t attribute,
                                                             const void* from, size_t bytes) {
  return set<MatrixLayout>(layout, attribute, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  return create(made, MatmulPreference());
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}
cublasStatus_t CUBLASWINAPI cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
    size_t bytes) {
  return set<MatmulPreference>(preference, attribute, from, bytes);
}

cublasStatus_t CUBLASWINAPI cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                                           cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                           cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                           cublasLtMatmulPreference_t preference, int wanted,
                                                           cublasLtMatmulHeuristicResult_t* results,
                                                           int* count) {
  return device_call(CUBLAS_STATUS_INTERNAL_ERROR, [&](Runtime&) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!count || !results) return refuse("a null result of the heuristic crashes");
    *count = 0;
    if (handle->device != current_device) return refuse("the handle is another device's");
    if (!preference || wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    Product p;
    const cublasStatus_t status = collect(&p, desc, a, b, c, d);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return plan(p, ours<MatmulPreference>(preference), wanted, results, count);
  });
}

cublasStatus_t CUBLASWINAPI cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                           const void* alpha, const void* a, cublasLtMatrixLayout_t layout_a,
                                           const void* b, cublasLtMatrixLayout_t layout_b, const void* beta,
                                           const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                                           cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t* algo,
                                           void* workspace, size_t workspace_bytes,
                                           cudaStream_t handle_of_stream) {
  return device_call(CUBLAS_STATUS_EXECUTION_FAILED, [&](Runtime& runtime) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    const cudaStream_t stream = runtime.stream(handle_of_stream);
    if (handle->device != current_device || stream->device != current_device)
      return refuse("the handle or the stream is another device's than the thread's");
    if (runtime.captures.check_work(stream) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    QueuedProduct q{};
    if (const cublasStatus_t status = collect(&q.product, desc, layout_a, layout_b, layout_c, layout_d);
        status != CUBLAS_STATUS_SUCCESS)
      return status;
    if (!alpha || !beta || device_that_holds(alpha) || device_that_holds(beta))
      return refuse("alpha and beta are read from the host's memory");
    q.algo = algo ? ours<const MatmulAlgo>(algo) : MatmulAlgo{0, 0, {1, 1, 1, 1}, false};
    q.op = gradus::internal::called_op;
    q.alpha = number_at(alpha, q.product.desc.scale);
    q.beta = number_at(beta, q.product.desc.scale);
    q.a = a, q.b = b, q.c = c, q.d = d;
    q.workspace = workspace, q.workspace_bytes = workspace_bytes;
    const cublasStatus_t status = check_pointers(q, algo != nullptr);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    // Other streams' work may run between the two halves.
    if (q.algo.workspace > 0) runtime.enqueue(stream, {[=] { begin_product(q); }});
    runtime.enqueue(stream, {[=] { end_product(q); }});
    return CUBLAS_STATUS_SUCCESS;
  });
}

}  // extern "C"

namespace gradus::cuda {

const CublasLt& cublaslt(const char*) {
#define GRADUS_FUNCTION(name) &::name,
  static constexpr CublasLt functions{GRADUS_CUBLASLT_FUNCTIONS(GRADUS_FUNCTION)};
#undef GRADUS_FUNCTION
  return functions;
}

}  // namespace gradus::cuda
