// Valid and invalid calls of cuBLASLt. cublaslt_answers.cu records the statuses of a real GPU;
// cublaslt_test.cc in tools/cuda_emulator/tests compares the emulated library with the record.
//
// Matrices are column-major unless an order is set: D[m, n] = alpha op(A) op(B) + beta C.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace calls {

constexpr size_t kWorkspace = size_t(64) << 20;

// Addresses of the operands.
struct Memory {
  char *a, *b, *c, *d, *bias, *aux, *workspace;
};

inline size_t size_of(cudaDataType_t t) {
  return t == CUDA_R_64F ? 8 : t == CUDA_R_32F || t == CUDA_R_32I ? 4 : t == CUDA_R_8I ? 1 : 2;
}

// The arguments of a product. null_x, host_a: passes a null pointer, or host memory; c_is_d: D is written
// over C; promise_alignment: the preference states the operands' real alignments.
struct Product {
  cudaDataType_t a = CUDA_R_32F, b = CUDA_R_32F, c = CUDA_R_32F, d = CUDA_R_32F, scale = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  int64_t m = 64, n = 32, k = 48;
  // Rows and columns as stored; -1: those that op, m, n and k require.
  int64_t a_rows = -1, a_cols = -1, b_rows = -1, b_cols = -1, c_rows = -1, c_cols = -1, d_rows = -1,
          d_cols = -1;
  int64_t lda = -1, ldb = -1, ldc = -1, ldd = -1;
  int order_a = CUBLASLT_ORDER_COL, order_b = CUBLASLT_ORDER_COL, order_c = CUBLASLT_ORDER_COL,
      order_d = CUBLASLT_ORDER_COL;
  int batch_a = 1, batch_b = 1, batch_c = 1, batch_d = 1;
  int64_t stride_a = -1, stride_b = -1, stride_c = -1, stride_d = -1;                    // -1: dense
  int64_t offset_a = 0, offset_b = 0, offset_c = 0, offset_d = 0, offset_workspace = 0;  // bytes
  bool null_a = false, null_b = false, null_c = false, null_d = false, null_alpha = false, null_beta = false,
       null_workspace = false;
  bool c_is_d = false, null_algo = false, promise_alignment = false, host_a = false;
  double alpha = 1, beta = 0;
  int epilogue = -1;
  bool bias = false;
  int64_t offset_bias = 0;
  int bias_type = -1;
  bool aux = false;
  int64_t aux_ld = -1;
  size_t workspace = kWorkspace, workspace_given = size_t(-1);
};

struct Setup {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::string layouts;  // the calls that failed, with their statuses
  char *pa, *pb, *pc, *pd, *bias, *aux, *workspace;
  ~Setup() {
    if (operation) cublasLtMatmulDescDestroy(operation);
    for (auto l : {a, b, c, d})
      if (l) cublasLtMatrixLayoutDestroy(l);
    if (preference) cublasLtMatmulPreferenceDestroy(preference);
  }
  Setup() = default;
  Setup(const Setup&) = delete;
};

// Creates the descriptors of a product. Failures are collected in s.layouts, which is empty if all succeed.
inline void set_up(Setup& s, const Product& p, const Memory& memory) {
  const auto note = [&](const char* what, cublasStatus_t e) {
    if (e != CUBLAS_STATUS_SUCCESS)
      s.layouts += std::string(s.layouts.empty() ? "" : ", ") + what + " " + cublasLtGetStatusName(e);
  };
  note("desc", cublasLtMatmulDescCreate(&s.operation, p.compute, p.scale));
  if (!s.operation) return;
  const auto set = [&](const char* what, cublasLtMatmulDescAttributes_t at, const void* v, size_t n) {
    note(what, cublasLtMatmulDescSetAttribute(s.operation, at, v, n));
  };
  set("op a", CUBLASLT_MATMUL_DESC_TRANSA, &p.op_a, sizeof p.op_a);
  set("op b", CUBLASLT_MATMUL_DESC_TRANSB, &p.op_b, sizeof p.op_b);
  s.pa = memory.a + p.offset_a;
  s.pb = memory.b + p.offset_b;
  s.pc = memory.c + p.offset_c;
  s.pd = p.c_is_d ? s.pc : memory.d + p.offset_d;
  s.bias = memory.bias + p.offset_bias;
  s.aux = memory.aux;
  s.workspace = memory.workspace + p.offset_workspace;
  if (p.epilogue >= 0) set("epilogue", CUBLASLT_MATMUL_DESC_EPILOGUE, &p.epilogue, sizeof p.epilogue);
  if (p.bias) set("bias", CUBLASLT_MATMUL_DESC_BIAS_POINTER, &s.bias, sizeof s.bias);
  if (p.bias_type >= 0)
    set("bias type", CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &p.bias_type, sizeof p.bias_type);
  if (p.aux) set("aux", CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &s.aux, sizeof s.aux);
  if (p.aux_ld >= 0) set("aux ld", CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p.aux_ld, sizeof p.aux_ld);
  const auto layout = [&](const char* what, cublasLtMatrixLayout_t* l, cudaDataType_t t, int64_t rows,
                          int64_t cols, int64_t ld, int order, int batch, int64_t stride) {
    if (ld == -1) ld = order == CUBLASLT_ORDER_COL ? rows : cols;
    note(what, cublasLtMatrixLayoutCreate(l, t, uint64_t(rows), uint64_t(cols), ld));
    if (!*l) return;
    if (order != CUBLASLT_ORDER_COL) {
      const int32_t o = order;
      note("order", cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_ORDER, &o, sizeof o));
    }
    if (batch != 1) {
      const int32_t n = batch;
      note("batch", cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
      const int64_t st = stride == -1 ? rows * cols : stride;
      note("batch stride",
           cublasLtMatrixLayoutSetAttribute(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &st, sizeof st));
    }
  };
  const auto or_else = [](int64_t v, int64_t other) { return v == -1 ? other : v; };
  const bool ta = p.op_a != CUBLAS_OP_N, tb = p.op_b != CUBLAS_OP_N;
  layout("a", &s.a, p.a, or_else(p.a_rows, ta ? p.k : p.m), or_else(p.a_cols, ta ? p.m : p.k), p.lda,
         p.order_a, p.batch_a, p.stride_a);
  layout("b", &s.b, p.b, or_else(p.b_rows, tb ? p.n : p.k), or_else(p.b_cols, tb ? p.k : p.n), p.ldb,
         p.order_b, p.batch_b, p.stride_b);
  layout("c", &s.c, p.c, or_else(p.c_rows, p.m), or_else(p.c_cols, p.n), p.ldc, p.order_c, p.batch_c,
         p.stride_c);
  layout("d", &s.d, p.d, or_else(p.d_rows, p.m), or_else(p.d_cols, p.n), p.ldd, p.order_d, p.batch_d,
         p.stride_d);
  note("preference", cublasLtMatmulPreferenceCreate(&s.preference));
  note("workspace",
       cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &p.workspace, sizeof p.workspace));
  if (p.promise_alignment) {
    const uint32_t align = 1;
    for (auto at : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      const uintptr_t address = at == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES   ? uintptr_t(s.pa)
                                : at == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES ? uintptr_t(s.pb)
                                : at == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES ? uintptr_t(s.pc)
                                                                                   : uintptr_t(s.pd);
      const uint32_t its = uint32_t(std::min<uintptr_t>(256, address & -address));
      note("alignment",
           cublasLtMatmulPreferenceSetAttribute(s.preference, at, its ? &its : &align, sizeof its));
    }
  }
}

inline cublasStatus_t run(cublasLtHandle_t handle, const Setup& s, const Product& p,
                          const cublasLtMatmulAlgo_t* algo, cudaStream_t stream = nullptr) {
  const float fa = float(p.alpha), fb = float(p.beta);
  const int32_t ia = int32_t(p.alpha), ib = int32_t(p.beta);
  const void *alpha = &fa, *beta = &fb;
  if (p.scale == CUDA_R_64F) alpha = &p.alpha, beta = &p.beta;
  if (p.scale == CUDA_R_32I) alpha = &ia, beta = &ib;
  uint16_t ha[2] = {0x3c00, uint16_t(p.beta ? 0x3c00 : 0)};
  if (p.scale == CUDA_R_16F) alpha = &ha[0], beta = &ha[1];
  static std::vector<char> on_host(1 << 20);
  return cublasLtMatmul(handle, s.operation, p.null_alpha ? nullptr : alpha,
                        p.null_a   ? nullptr
                        : p.host_a ? on_host.data()
                                   : s.pa,
                        s.a, p.null_b ? nullptr : s.pb, s.b, p.null_beta ? nullptr : beta,
                        p.null_c ? nullptr : s.pc, s.c, p.null_d ? nullptr : s.pd, s.d,
                        p.null_algo ? nullptr : algo, p.null_workspace ? nullptr : s.workspace,
                        p.workspace_given == size_t(-1) ? p.workspace : p.workspace_given, stream);
}

inline Product typed(cudaDataType_t t, cublasComputeType_t compute, cudaDataType_t scale) {
  Product p;
  p.a = p.b = p.c = p.d = t;
  p.compute = compute;
  p.scale = scale;
  return p;
}
struct Named {
  const char* name;
  Product p;
};
inline const std::vector<Named>& kinds() {
  static const std::vector<Named> all = {
      {"f32", typed(CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F)},
      {"tf32", typed(CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F)},
      {"f64", typed(CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F)},
      {"f16", typed(CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F)},
      {"bf16", typed(CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F)}};
  return all;
}

// Calls ask(text, product) for each product. The text is the source code of the fields that differ from
// `base`.
template <class Ask> void right_and_wrong_calls(const Product& base, Ask&& ask) {
#define ASK(...)                             \
  do {                                       \
    Product p = base;                        \
    [&]<class... T>(T&&...) {}(__VA_ARGS__); \
    ask(#__VA_ARGS__, p);                    \
  } while (0)

  ASK(p.beta = 0);
  ASK(p.beta = 1);
  ASK(p.null_a = true);
  ASK(p.null_b = true);
  ASK(p.null_c = true);
  ASK(p.null_c = true, p.beta = 1);
  ASK(p.null_d = true);
  ASK(p.null_alpha = true);
  ASK(p.null_beta = true);
  ASK(p.null_algo = true);
  ASK(p.alpha = 0, p.null_a = true, p.null_b = true);
  ASK(p.lda = 65);
  ASK(p.lda = 63);
  ASK(p.lda = 1);
  ASK(p.lda = 0);
  ASK(p.lda = -2);
  ASK(p.ldb = 47);
  ASK(p.ldc = 63);
  ASK(p.ldc = 63, p.beta = 1);
  ASK(p.ldd = 63);
  ASK(p.ldd = 80);
  ASK(p.ldc = 80, p.beta = 1);
  ASK(p.a_rows = 65);
  ASK(p.a_cols = 49);
  ASK(p.b_rows = 49);
  ASK(p.b_cols = 33);
  ASK(p.c_rows = 63);
  ASK(p.d_rows = 63);
  ASK(p.d_cols = 31);
  ASK(p.op_a = CUBLAS_OP_T);
  ASK(p.op_b = CUBLAS_OP_T);
  ASK(p.op_a = CUBLAS_OP_C);
  ASK(p.op_a = CUBLAS_OP_T, p.a_rows = 64, p.a_cols = 48);
  ASK(p.op_a = cublasOperation_t(7));
  ASK(p.m = 0);
  ASK(p.n = 0);
  ASK(p.k = 0);
  ASK(p.k = 0, p.beta = 1);
  ASK(p.m = 1, p.n = 1, p.k = 1);
  ASK(p.m = 3, p.n = 5, p.k = 7);
  ASK(p.m = 63);
  ASK(p.m = -1);
  ASK(p.offset_a = 1);
  ASK(p.offset_a = 2);
  ASK(p.offset_a = 4);
  ASK(p.offset_a = 8);
  ASK(p.offset_b = 2);
  ASK(p.offset_b = 4);
  ASK(p.offset_c = 2, p.beta = 1);
  ASK(p.offset_c = 4, p.beta = 1);
  ASK(p.offset_d = 2);
  ASK(p.offset_d = 4);
  ASK(p.offset_d = 8);
  ASK(p.offset_a = 2, p.promise_alignment = true);
  ASK(p.offset_a = 4, p.promise_alignment = true);
  ASK(p.offset_b = 4, p.promise_alignment = true);
  ASK(p.offset_d = 4, p.promise_alignment = true);
  ASK(p.offset_a = 8, p.promise_alignment = true);
  ASK(p.c_is_d = true, p.beta = 1);
  ASK(p.c_is_d = true, p.beta = 1, p.ldc = 80);
  ASK(p.c_is_d = true, p.beta = 1, p.ldd = 80);
  ASK(p.c_is_d = true, p.beta = 1, p.order_d = CUBLASLT_ORDER_ROW);
  ASK(p.order_a = CUBLASLT_ORDER_ROW);
  ASK(p.order_b = CUBLASLT_ORDER_ROW);
  ASK(p.order_a = p.order_b = CUBLASLT_ORDER_ROW);
  ASK(p.order_d = CUBLASLT_ORDER_ROW);
  ASK(p.order_c = p.order_d = CUBLASLT_ORDER_ROW);
  ASK(p.order_a = p.order_b = p.order_c = p.order_d = CUBLASLT_ORDER_ROW);
  ASK(p.order_a = p.order_b = p.order_c = p.order_d = CUBLASLT_ORDER_ROW, p.lda = 47);
  ASK(p.order_a = CUBLASLT_ORDER_COL32);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 0);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = -1);
  ASK(p.batch_a = 4);
  ASK(p.batch_a = p.batch_b = 4);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_a = 0);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_a = p.stride_b = 0);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_d = 0);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_a = 100);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_a = 101);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_d = 100);
  ASK(p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_a = -3072, p.offset_a = 1 << 20);
  ASK(p.batch_b = p.batch_c = p.batch_d = 4, p.batch_a = 1);
  ASK(p.workspace = 0);
  ASK(p.workspace = 0, p.null_workspace = true);
  ASK(p.null_workspace = true);
  ASK(p.m = 64, p.n = 64, p.k = 65536, p.workspace_given = 16);
  ASK(p.m = 64, p.n = 64, p.k = 65536);
  ASK(p.m = 64, p.n = 64, p.k = 65536, p.null_workspace = true);
  ASK(p.m = 64, p.n = 64, p.k = 65536, p.offset_workspace = 1);
  ASK(p.m = 64, p.n = 64, p.k = 65536, p.offset_workspace = 8);
  ASK(p.m = 64, p.n = 64, p.k = 65536, p.offset_workspace = 16);
  ASK(p.m = 64, p.n = 64, p.k = 65536, p.offset_workspace = 128);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true);
  ASK(p.bias = true);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.offset_bias = 1);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.offset_bias = 2);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.offset_bias = 4);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.offset_bias = 8);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.bias_type = CUDA_R_16BF);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.bias_type = CUDA_R_32F);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.bias_type = CUDA_R_64F);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.order_c = p.order_d = CUBLASLT_ORDER_ROW);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true, p.beta = 1);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux = true, p.aux_ld = 128);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux = true, p.aux_ld = 64);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux = true);
  ASK(p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux_ld = 128);
  ASK(p.epilogue = 3);
  ASK(p.epilogue = 0);
  ASK(p.compute = CUBLAS_COMPUTE_64F);
  ASK(p.compute = CUBLAS_COMPUTE_16F);
  ASK(p.compute = CUBLAS_COMPUTE_32I);
  ASK(p.compute = CUBLAS_COMPUTE_32F_FAST_16BF);
  ASK(p.compute = CUBLAS_COMPUTE_32F_PEDANTIC);
  ASK(p.compute = cublasComputeType_t(1));
  ASK(p.scale = CUDA_R_64F);
  ASK(p.scale = CUDA_R_16F);
  ASK(p.a = CUDA_R_16F);
  ASK(p.a = p.b = CUDA_R_16F);
  ASK(p.a = p.b = CUDA_R_16BF);
  ASK(p.c = CUDA_R_16BF);
  ASK(p.c = p.d = CUDA_R_32F);
  ASK(p.c = p.d = CUDA_R_16F);
  ASK(p.c = p.d = CUDA_R_64F);
  ASK(p.c = CUDA_R_32F, p.beta = 1);
#undef ASK
}

// Calls plan(text, product) for sizes up to and beyond 2^31; the operands are not that large.
template <class Plan> void large_products(const Product& base, Plan&& plan) {
  for (const auto& [name, m, n, k] :
       {std::tuple("m = 2^31", int64_t(1) << 31, 1, 1),
        std::tuple("m = 2^31 - 1", (int64_t(1) << 31) - 1, 1, 1),
        std::tuple("m = 65536, n = 65536 (4 Gi elements)", int64_t(65536), 65536, 16),
        std::tuple("m = 2^33", int64_t(1) << 33, 1, 1)}) {
    Product p = base;
    p.m = m, p.n = n, p.k = k;
    plan(name, p);
  }
}

}  // namespace calls
