// The functions of cuBLASLt that Gradus calls. The library has 541 MB, so no program is linked with it: it is
// opened when a product first needs it (cublaslt_library.cc).
#pragma once

#include <cublasLt.h>

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

struct CublasLt {
#define GRADUS_MEMBER(name) decltype(&::name) name;
  GRADUS_CUBLASLT_FUNCTIONS(GRADUS_MEMBER)
#undef GRADUS_MEMBER
};

// Errors: DeviceError naming `op` that says how to install the library, where it is not there.
const CublasLt& cublaslt(const char* op);

}  // namespace gradus::cuda
