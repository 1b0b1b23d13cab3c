// Matrix products by cublasLtMatmul, which is opened at run time (cublaslt_functions.h). Each call builds
// descriptors, takes the first algorithm of the library's heuristic, and queues d = op(a) op(b), with bias
// and ReLU or with sums of op(b) as epilogue, on the stream. f16 and bf16 are summed in f32. Matrices are
// column-major device memory that outlives the queued work.
#include "gradus/tensor/cuda/cublas/cublaslt.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "gradus/tensor/cuda/cublas/cublaslt_functions.h"
#include "gradus/tensor/cuda/runtime/host_calls.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::cuda {
namespace {

// Maximal bytes of an algorithm's workspace: NVIDIA's advice for an H100, where layers take at most 17 MB.
constexpr uint64_t kMaxWorkspace = 32 << 20;

void check(const char* op, const char* call, const CublasLt& library, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    throw CublasError(op, call, library.cublasLtGetStatusName(status), status);
}
// Calls a function of the library. Needs `op` and `library` in scope. Throws CublasError on failure.
#define GRADUS_CHECK(call, ...) check(op, #call, library, library.call(__VA_ARGS__))

// Returns the library handle of a device, made at the first call. Handles are never destroyed.
cublasLtHandle_t handle_of(const char* op, const CublasLt& library, int device) {
  static std::mutex mutex;
  static auto& handles = *new std::vector<cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  const auto at = static_cast<size_t>(device);
  if (handles.size() <= at) handles.resize(at + 1);
  if (!handles[at]) GRADUS_CHECK(cublasLtCreate, &handles[at]);
  return handles[at];
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

// Owns a descriptor object of the library.
template <class Opaque> using Owned = std::unique_ptr<Opaque, cublasStatus_t (*)(Opaque*)>;

Owned<cublasLtMatrixLayoutOpaque_t> make_layout(const char* op, const CublasLt& library, DType dtype,
                                                const MatrixBatch& m, int64_t batch) {
  cublasLtMatrixLayout_t made = nullptr;
  GRADUS_CHECK(cublasLtMatrixLayoutCreate, &made, type_of(dtype), static_cast<uint64_t>(m.rows),
               static_cast<uint64_t>(m.cols), m.ld);
  Owned<cublasLtMatrixLayoutOpaque_t> layout(made, library.cublasLtMatrixLayoutDestroy);
  if (batch == 1) return layout;
  const auto count = static_cast<int32_t>(batch);
  GRADUS_CHECK(cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
               sizeof count);
  GRADUS_CHECK(cublasLtMatrixLayoutSetAttribute, made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
               &m.batch_stride, sizeof m.batch_stride);
  return layout;
}

Owned<cublasLtMatmulDescOpaque_t> make_descriptor(const char* op, const CublasLt& library,
                                                  const MatrixProduct& p) {
  cublasLtMatmulDesc_t made = nullptr;
  const bool is_double = p.dtype == DType::kF64;
  const cublasComputeType_t sums = is_double ? CUBLAS_COMPUTE_64F
                                   : p.dtype == DType::kF32 && Context::current().tf32
                                       ? CUBLAS_COMPUTE_32F_FAST_TF32
                                       : CUBLAS_COMPUTE_32F;
  GRADUS_CHECK(cublasLtMatmulDescCreate, &made, sums, is_double ? CUDA_R_64F : CUDA_R_32F);
  Owned<cublasLtMatmulDescOpaque_t> descriptor(made, library.cublasLtMatmulDescDestroy);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    GRADUS_CHECK(cublasLtMatmulDescSetAttribute, made, attribute, &value, sizeof value);
  };
  if (p.a.transposed) set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (p.b.transposed) set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
  if (p.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
  if (p.relu)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
  else if (p.bias)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  if (p.b_sums) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.b_sums);
    if (p.result_dtype != p.dtype) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.result_dtype));
  }
  return descriptor;
}

Owned<cublasLtMatmulPreferenceOpaque_t> make_preference(const char* op, const CublasLt& library,
                                                        const MatrixProduct& p) {
  cublasLtMatmulPreference_t made = nullptr;
  GRADUS_CHECK(cublasLtMatmulPreferenceCreate, &made);
  Owned<cublasLtMatmulPreferenceOpaque_t> preference(made, library.cublasLtMatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    GRADUS_CHECK(cublasLtMatmulPreferenceSetAttribute, made, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  // Partial sums are not rounded to 16 bits.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = [](const void* p) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    return static_cast<uint32_t>(std::min<uintptr_t>(256, address & -address));
  };
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(p.a.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(p.b.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(p.d.data));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(p.d.data));
  return preference;
}

}  // namespace

bool multiply(const char* op, const MatrixProduct& p, Device device, cudaStream_t stream) {
  const CublasLt& library = cublaslt(op);
  const cublasLtHandle_t handle = handle_of(op, library, device.index);
  const auto descriptor = make_descriptor(op, library, p);
  const auto a = make_layout(op, library, p.dtype, p.a, p.batch);
  const auto b = make_layout(op, library, p.dtype, p.b, p.batch);
  const auto d = make_layout(op, library, p.result_dtype, p.d, p.batch);
  const auto preference = make_preference(op, library, p);

  // The library caches the results of its heuristic: a repeated query takes about 2 us
  // (tools/gpu_lab/records/h100/cublaslt_layers.txt).
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      handle, descriptor.get(), a.get(), b.get(), d.get(), d.get(), preference.get(), 1, &found, &count);
  if (status == CUBLAS_STATUS_SUCCESS) status = count ? found.state : CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.b_sums && (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE))
    return false;
  check(op, "cublasLtMatmulAlgoGetHeuristic", library, status);
  Tensor workspace;  // freed at return: the allocator reuses its memory on this stream only after the product
  if (found.workspaceSize > 0)
    workspace = empty({static_cast<int64_t>(found.workspaceSize)}, {DType::kU8, device});
  const double one = 1, zero = 0;
  const float one_f32 = 1, zero_f32 = 0;
  const bool is_double = p.dtype == DType::kF64;
  // With beta 0, C is not read.
  GRADUS_CHECK(cublasLtMatmul, handle, descriptor.get(),
               is_double ? static_cast<const void*>(&one) : &one_f32, p.a.data, a.get(), p.b.data, b.get(),
               is_double ? static_cast<const void*>(&zero) : &zero_f32, p.d.data, d.get(), p.d.data, d.get(),
               &found.algo, workspace ? workspace.raw_ptr() : nullptr, found.workspaceSize, stream);
  count_calls(op, {.library_calls = 1});
  return true;
}

#undef GRADUS_CHECK

}  // namespace gradus::cuda
