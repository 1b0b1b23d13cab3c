// Loading libraries of the CUDA toolkit, which needs no GPU: errors of missing ones, and that the real
// cuBLASLt, if installed, has the functions and attribute sizes that Gradus uses.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/cuda/cublas/cublaslt_functions.h"
#include "gradus/tensor/cuda/runtime/open_library.h"

namespace gradus {
namespace {

TEST(CudaLibraries, AMissingOneIsAnError) {
  setenv("CUDA_HOME", "/nonexistent", 1);
  try {
    cuda::open_library("matmul", {"libgradus-missing.so.1", "products need a library", "some-package"});
    ADD_FAILURE() << "it was opened";
  } catch (const DeviceError& e) {
    const std::string text = e.what();
    for (const char* part :
         {"[matmul] products need a library, and libgradus-missing.so.1 cannot be opened", "some-package",
          "tools/cuda-toolkit.sh", "CUDA_HOME", "/nonexistent/lib64/libgradus-missing.so.1: cannot open"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  unsetenv("CUDA_HOME");
}

TEST(CudaLibraries, AMissingFunctionIsAnError) {
  const cuda::Library library{"libc.so.6", "", ""};
  void* const opened = cuda::open_library("matmul", library);
  EXPECT_NE(cuda::find_function("matmul", library, opened, "malloc"), nullptr);
  EXPECT_THROW(cuda::find_function("matmul", library, opened, "gradus_missing"), DeviceError);
}

TEST(CudaLibraries, CublasLtTakesOurAttributes) {
  const cuda::CublasLt* found = nullptr;
  try {
    found = &cuda::cublaslt("matmul");
  } catch (const DeviceError& e) {
    GTEST_SKIP() << e.what();
  }
  const cuda::CublasLt& library = *found;
  EXPECT_STREQ(library.cublasLtGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulPreference_t preference;
  ASSERT_EQ(library.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(library.cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 1, 1, 1), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(library.cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  const uint64_t zero = 0;
  // Sizes in bytes; others are refused.
  for (const auto& [attribute, size] : {std::pair(CUBLASLT_MATMUL_DESC_TRANSA, 4),
                                        {CUBLASLT_MATMUL_DESC_TRANSB, 4},
                                        {CUBLASLT_MATMUL_DESC_EPILOGUE, 4},
                                        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8}})
    for (const int bytes : {4, 8})
      EXPECT_EQ(library.cublasLtMatmulDescSetAttribute(desc, attribute, &zero, static_cast<size_t>(bytes)),
                bytes == size ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
  for (const auto& [attribute, size] :
       {std::pair(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4), {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8}})
    for (const int bytes : {4, 8})
      EXPECT_EQ(
          library.cublasLtMatrixLayoutSetAttribute(layout, attribute, &zero, static_cast<size_t>(bytes)),
          bytes == size ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
  for (const auto& [attribute, size] : {std::pair(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8),
                                        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4},
                                        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4}})
    for (const int bytes : {4, 8})
      EXPECT_EQ(library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &zero,
                                                             static_cast<size_t>(bytes)),
                bytes == size ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(library.cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(library.cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(library.cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace gradus
