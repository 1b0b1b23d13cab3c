// The functions of cuBLASLt that Gradus calls. Programs do not link with cuBLASLt, a library of 541 MB: the
// first matrix product on a GPU opens it with dlopen (cublaslt_library.cc).
#pragma once

#include <cublasLt.h>

// Expands F(name) for each function.
#define GRADUS_CUBLASLT_FUNCTIONS(F)      \
  F(cublasLtCreate)                       \
  F(cublasLtDestroy)                      \
  F(cublasLtGetStatusName)                \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)

namespace gradus::cuda {

// Pointers to the functions, with cuBLASLt's names and signatures.
struct CublasLt {
#define GRADUS_MEMBER(name) decltype(&::name) name;
  GRADUS_CUBLASLT_FUNCTIONS(GRADUS_MEMBER)
#undef GRADUS_MEMBER
};

// Returns the functions, loaded until the process ends. The first call opens the library. Thread-safe.
// Errors: DeviceError naming `op` if the library or a function is missing. A later call tries again.
const CublasLt& cublaslt(const char* op);

}  // namespace gradus::cuda
