// What the emulated entry points of cuBLASLt share: descriptors, and a product that was asked for.
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
  const void* bias = nullptr;
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

// What the heuristic hands out.
struct MatmulAlgo {
  uint64_t product;                    // the product that it was made for, as a hash
  uint64_t workspace;                  // bytes
  std::array<uint32_t, 4> alignments;  // that it needs
  bool rounds_parts;                   // sums in two parts, each rounded to D's type
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

// Returns what the library answers to a product of such types and shapes, as recorded
// (tools/cuda_emulator/tests/cublaslt_answers.txt) or more strictly.
cublasStatus_t check_product(const Product& p);

// A product whose arguments were checked, as it waits on a stream.
struct QueuedProduct {
  Product product;
  MatmulAlgo algo;
  const char* op;  // that Gradus' user called; a literal, or null
  double alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t workspace_bytes;
};

// How many descriptors, layouts and preferences there are. For tests: none may be left over.
size_t count_matmul_descriptors();

// The two halves of a product's work. The first writes to the workspace, the second looks whether it is still
// as it was, and computes. A fault is delivered, and ends it.
void begin_product(const QueuedProduct& q);
void end_product(const QueuedProduct& q);

}  // namespace gradus::cuda::emulated
