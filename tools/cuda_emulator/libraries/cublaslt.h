// Types of the emulated cuBLASLt: the contents of descriptors, and a product D = f(alpha op(A) op(B) + beta C
// + bias), maybe with a bias gradient, that was checked and waits on a stream.
#pragma once

#include <cublasLt.h>
#include <library_types.h>

#include <array>
#include <cstdint>

namespace gradus::cuda::emulated {

struct MatmulDesc {
  int32_t compute, scale;
  int32_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int32_t bias_type = -1;
  void* bias = nullptr;  // or the bias gradient, which is written

  bool adds_bias() const { return epilogue & CUBLASLT_EPILOGUE_BIAS; }
  bool has_bias_gradient() const {
    return epilogue == CUBLASLT_EPILOGUE_BGRADA || epilogue == CUBLASLT_EPILOGUE_BGRADB;
  }
  bool uses_bias() const { return adds_bias() || has_bias_gradient(); }
};

struct MatrixLayout {
  uint32_t type;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows, cols;
  int64_t ld;
  int64_t stride = 0;
  int32_t batch = 1;

  bool operator==(const MatrixLayout&) const = default;
};

struct MatmulPreference {
  uint64_t workspace = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<uint32_t, 4> alignments{256, 256, 256, 256};  // of A, B, C, D, in bytes
};

// An algorithm that the heuristic returns.
struct MatmulAlgo {
  uint64_t product;                    // the product that it was made for, as a hash
  uint64_t workspace;                  // bytes
  std::array<uint32_t, 4> alignments;  // required of A, B, C, D, in bytes
  bool rounds_parts;                   // adds two partial sums over k, each rounded to D's type
};

struct Product {
  MatmulDesc desc;
  MatrixLayout a, b, c, d;

  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.cols; }
  uint64_t k() const { return desc.op_a == CUBLAS_OP_N ? a.cols : a.rows; }
  uint64_t hash() const;
};

constexpr size_t size_of_element(uint32_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

// Returns the library's status for a product of these types and shapes, as recorded
// (tools/cuda_emulator/tests/cublaslt_answers.txt) or stricter.
cublasStatus_t check_product(const Product& p);

// A product whose arguments were checked, for the queue of a stream.
struct QueuedProduct {
  Product product;
  MatmulAlgo algo;
  const char* op;  // the Gradus op that was called, a string literal; null: none
  double alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
};

// Returns the number of living descriptors, layouts and preferences. For tests, which check for leaks.
size_t count_matmul_descriptors();

// The two halves of a product: the first fills the workspace; the second checks that the workspace is
// unchanged, and computes. A fault is delivered and ends the product.
void begin_product(const QueuedProduct& q);
void end_product(const QueuedProduct& q);

}  // namespace gradus::cuda::emulated
