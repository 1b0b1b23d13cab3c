// Tests of the emulated cuBLASLt: statuses equal those of an H100 (cublaslt_answers.txt) except for a list of
// differences, results equal exact sums of small integers, and memory errors are faults.
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/tools/cuda_emulator/call.h"
#include "gradus/tools/cuda_emulator/fault.h"
#include "gradus/tools/cuda_emulator/memory.h"
#include "gradus/tools/cuda_emulator/order.h"
#include "gradus/tools/gpu_lab/recorders/cublaslt_calls.h"

namespace {

using namespace gradus::cuda::emulated;  // NOLINT
using calls::Product;

class Handle {
 public:
  Handle() { EXPECT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS); }
  ~Handle() { cublasLtDestroy(handle_); }
  operator cublasLtHandle_t() const { return handle_; }  // NOLINT

 private:
  cublasLtHandle_t handle_ = nullptr;
};

char* allocate(size_t bytes, bool written = true) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, bytes), cudaSuccess);
  if (written) {
    EXPECT_EQ(cudaMemset(p, 0, bytes), cudaSuccess);
  }
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  return static_cast<char*>(p);
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAnyEnum = false;  // sanitizers refuse values outside of an enum
#else
constexpr bool kAnyEnum = true;
#endif

// ---- answers

// The recorded answer to each call, by group and by what was asked.
std::map<std::pair<std::string, std::string>, std::string> record() {
  std::map<std::pair<std::string, std::string>, std::string> answers;
  std::ifstream file("tools/cuda_emulator/tests/cublaslt_answers.txt");
  EXPECT_TRUE(file) << "the record is not there";
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first != std::string::npos && first > 0)
      answers[{line.substr(0, first), line.substr(first + 1, second - first - 1)}] = line.substr(second + 1);
  }
  return answers;
}

// Returns the status that follows `mark` in a record, or "".
std::string status_behind(const std::string& answer, const std::string& mark) {
  size_t at = answer.find(mark);
  if (at == std::string::npos) return "";
  at += mark.size();
  const size_t end = answer.find_first_of(" ;", at);
  return answer.substr(at, end - at);
}

// Calls, with the types, in which the emulation is stricter than the recorded library, or supports less.
const std::map<std::string, std::set<std::string>>& differences() {
  static const std::set<std::string> all = {"f32", "tf32", "f64", "f16", "bf16"};
  static const std::map<std::string, std::set<std::string>> list = {
      // No product at all.
      {"p.batch_a = p.batch_b = p.batch_c = p.batch_d = 0", {"f32", "tf32", "f64"}},
      {"p.batch_a = p.batch_b = p.batch_c = p.batch_d = -1", {"f32", "tf32", "f64"}},
      // Results that overlap; a stride that loses the device in other types.
      {"p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_d = 0", all},
      {"p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_d = 100", all},
      {"p.batch_a = p.batch_b = p.batch_c = p.batch_d = 4, p.stride_a = -3072, p.offset_a = 1 << 20",
       {"f32", "tf32", "f64"}},
      // The operation is another algorithm's. Another wrong status.
      {"p.m = 64, p.n = 64, p.k = 65536, p.workspace_given = 16", {"f64"}},
      {"p.compute = CUBLAS_COMPUTE_16F", {"f16"}},
      // Undocumented epilogues and types.
      {"p.epilogue = 3", all},
      {"p.epilogue = 0", all},
      {"p.c = p.d = CUDA_R_16F", {"tf32"}},
      {"p.c = p.d = CUDA_R_64F", {"tf32"}},
      {"p.a = CUDA_R_16F", {"tf32"}},
      {"p.a = p.b = CUDA_R_16F", {"tf32"}},
      {"p.a = p.b = CUDA_R_16BF", {"tf32"}},
      // Not emulated.
      {"p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux = true, p.aux_ld = 128", all},
      {"p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux = true, p.aux_ld = 64", all},
      {"p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux = true", all},
      {"p.epilogue = CUBLASLT_EPILOGUE_RELU_AUX, p.aux_ld = 128", all},
      {"p.compute = CUBLAS_COMPUTE_32F_FAST_16BF", {"f32", "tf32", "f16", "bf16"}},
  };
  return list;
}

TEST(EmulatedCublasLt, AnswersAsRecorded) {
  const auto answers = record();
  const Handle handle;
  const size_t large = size_t(34) << 20, small = size_t(2) << 20;
  const calls::Memory memory = {allocate(large),
                                allocate(large),
                                allocate(small),
                                allocate(small),
                                allocate(small),
                                allocate(small),
                                allocate(calls::kWorkspace, false)};
  cublasLtMatmulAlgo_t plain{};
  {
    calls::Setup s;
    set_up(s, Product(), memory);
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 1,
                                             &result, &count),
              CUBLAS_STATUS_SUCCESS);
    plain = result.algo;
  }
  int compared = 0;
  std::set<std::pair<std::string, std::string>> differ;
  for (const auto& [kind, base] : calls::kinds()) {
    const std::string name = kind, group = "calls in " + name;
    const auto compare = [&, name](const char* asked, const std::string& said) {
      const auto found = answers.find({group, asked});
      std::string want = "crash";
      if (found != answers.end()) {
        want = status_behind(found->second, "heuristic ");
        const std::string matmul = status_behind(found->second, "matmul ");
        if (!matmul.empty()) want += ", " + matmul;
        if (found->second.find("; then cudaError") != std::string::npos) want = "crash";
      }
      ++compared;
      const auto known = differences().find(asked);
      if (known != differences().end() && known->second.contains(name)) {
        EXPECT_NE(said, want) << "a difference no more: " << name << ", " << asked;
        differ.insert({name, asked});
      } else {
        EXPECT_EQ(said, want) << name << ", " << asked;
      }
    };
    right_and_wrong_calls(base, [&](const char* asked, const Product& p) {
      if (!kAnyEnum && std::string(asked) == "p.op_a = cublasOperation_t(7)") return;
      FaultScope faults;
      calls::Setup s;
      set_up(s, p, memory);
      EXPECT_EQ(s.layouts.empty(), !p.aux && p.aux_ld < 0) << asked;  // attributes that are not emulated
      cublasLtMatmulHeuristicResult_t results[4];
      int count = 0;
      const cublasStatus_t h = cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d,
                                                              s.preference, 4, results, &count);
      EXPECT_EQ(count > 0, h == CUBLAS_STATUS_SUCCESS) << asked;
      const cublasStatus_t r = run(handle, s, p, count ? &results[0].algo : &plain);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      std::string said = std::string(cublasLtGetStatusName(h)) + ", " + cublasLtGetStatusName(r);
      if (!faults.take().empty()) said = "crash";
      compare(asked, said);
    });
    large_products(base, [&](const char* asked, const Product& p) {
      calls::Setup s;
      set_up(s, p, memory);
      cublasLtMatmulHeuristicResult_t results[4];
      int count = 0;
      compare(asked, cublasLtGetStatusName(cublasLtMatmulAlgoGetHeuristic(
                         handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 4, results, &count)));
    });
  }
  EXPECT_EQ(compared, 5 * (130 + kAnyEnum));
  size_t listed = 0;
  for (const auto& [asked, kinds] : differences()) listed += kinds.size();
  EXPECT_EQ(differ.size(), listed);
  for (char* p : {memory.a, memory.b, memory.c, memory.d, memory.bias, memory.aux, memory.workspace})
    cudaFree(p);
}

// The calls of "handles" in the record, and attributes of each size.
TEST(EmulatedCublasLt, RefusesWrongAttributes) {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t layout;
  cublasLtMatmulPreference_t preference;
  EXPECT_EQ(cublasLtMatmulDescCreate(nullptr, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutCreate(nullptr, CUDA_R_32F, 1, 1, 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulPreferenceCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  ASSERT_EQ(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 1, 1, 1), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);

  const std::map<int, size_t> of_desc = {
      {CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4},  {CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4},
      {CUBLASLT_MATMUL_DESC_TRANSA, 4},        {CUBLASLT_MATMUL_DESC_TRANSB, 4},
      {CUBLASLT_MATMUL_DESC_EPILOGUE, 4},      {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8},
      {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4}};
  const std::map<int, size_t> of_layout = {{CUBLASLT_MATRIX_LAYOUT_TYPE, 4},
                                           {CUBLASLT_MATRIX_LAYOUT_ORDER, 4},
                                           {CUBLASLT_MATRIX_LAYOUT_ROWS, 8},
                                           {CUBLASLT_MATRIX_LAYOUT_COLS, 8},
                                           {CUBLASLT_MATRIX_LAYOUT_LD, 8},
                                           {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 4},
                                           {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 8}};
  const std::map<int, size_t> of_preference = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8},   {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4}, {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4}, {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4}};
  const uint64_t value[4] = {};
  const auto status = [](const std::map<int, size_t>& known, int attribute, size_t bytes) {
    const auto found = known.find(attribute);
    return found != known.end() && found->second == bytes ? CUBLAS_STATUS_SUCCESS
                                                          : CUBLAS_STATUS_INVALID_VALUE;
  };
  for (const int at : {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 26, 99}) {
    if (at > 15 && !kAnyEnum) continue;
    for (const size_t bytes : {0, 1, 2, 4, 8, 16}) {
      EXPECT_EQ(
          cublasLtMatmulDescSetAttribute(desc, static_cast<cublasLtMatmulDescAttributes_t>(at), value, bytes),
          status(of_desc, at, bytes));
      EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(layout, static_cast<cublasLtMatrixLayoutAttribute_t>(at),
                                                 value, bytes),
                status(of_layout, at, bytes));
      EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(
                    preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(at), value, bytes),
                status(of_preference, at, bytes));
    }
  }
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, nullptr, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_EPILOGUE, value, 4),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatmulDescDestroy(nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(cublasLtMatrixLayoutDestroy(nullptr), CUBLAS_STATUS_SUCCESS);
}

// ---- products of small matrices

// Allocations exactly as large as their matrices, so that every access beyond is a fault.
struct EmulatedProduct : testing::Test {
  void fill(const std::vector<float>& a, const std::vector<float>& b) {
    memory.a = allocate(a.size() * 4), memory.b = allocate(b.size() * 4);
    cudaMemcpy(memory.a, a.data(), a.size() * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(memory.b, b.data(), b.size() * 4, cudaMemcpyHostToDevice);
  }
  // A product of 3 x 4 and 4 x 2 matrices in f32.
  EmulatedProduct() {
    p.m = 3, p.n = 2, p.k = 4;
    p.workspace = 1024;
    std::vector<float> a(12), b(8);
    for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i + 1);
    for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(10 - 3 * static_cast<int>(i));
    fill(a, b);
    memory.c = allocate(24), memory.d = allocate(24, false), memory.bias = allocate(12);
    memory.aux = nullptr, memory.workspace = allocate(1024, false);
  }
  ~EmulatedProduct() override {
    for (char* x : {memory.a, memory.b, memory.c, memory.d, memory.bias, memory.workspace}) cudaFree(x);
  }

  cublasStatus_t multiply(cudaStream_t stream = nullptr) {
    calls::Setup s;
    set_up(s, p, memory);
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d,
                                                                 s.preference, 1, &result, &count);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return run(handle, s, p, &result.algo, stream);
  }
  std::vector<float> result(size_t n = 6) {
    std::vector<float> d(n);
    EXPECT_EQ(cudaMemcpy(d.data(), memory.d, n * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return d;
  }
  // Multiplies. Returns the FaultKind of the fault, or -1.
  int fault() {
    FaultScope faults;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
    cudaDeviceSynchronize();
    const std::vector<Fault> found = faults.take();
    EXPECT_LE(found.size(), 1u);
    if (found.empty()) return -1;
    text = found[0].text;
    return static_cast<int>(found[0].kind);
  }
  void expect_fault(FaultKind kind, const std::string& words) {
    EXPECT_EQ(fault(), static_cast<int>(kind)) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }

  Handle handle;
  Product p;
  calls::Memory memory;
  std::string text;
};

TEST_F(EmulatedProduct, IsRight) {
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  // A = [1 4 7 10; 2 5 8 11; 3 6 9 12], B = [10 -2; 7 -5; 4 -8; 1 -11].
  EXPECT_EQ(result(), (std::vector<float>{76, 98, 120, -188, -214, -240}));
}

TEST_F(EmulatedProduct, HasOrdersTransposesAndGaps) {
  for (const int form : {0, 1, 2, 3}) {
    p.op_a = form & 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
    p.order_a = form & 1 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;  // twice: the same bytes
    p.op_b = form & 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
    p.order_b = form & 2 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
    ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(result(), (std::vector<float>{76, 98, 120, -188, -214, -240})) << form;
  }
  // A[2, 4], every column followed by one more element, which is not read.
  p = Product();
  p.m = 2, p.n = 2, p.k = 4, p.lda = 3, p.workspace = 0;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(4), (std::vector<float>{76, 98, -188, -214}));
  p.order_c = p.order_d = CUBLASLT_ORDER_ROW;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(4), (std::vector<float>{76, -188, 98, -214}));
}

TEST_F(EmulatedProduct, HasBatches) {
  p.m = 1, p.n = 1, p.k = 4;
  p.batch_a = p.batch_b = p.batch_c = p.batch_d = 3;
  p.stride_a = 4, p.stride_b = 0, p.stride_c = p.stride_d = 2;
  cudaMemset(memory.d, 0, 24);
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), (std::vector<float>{40, 0, 128, 0, 216, 0}));
}

TEST_F(EmulatedProduct, ScalesAddsAndActivates) {
  const std::vector<float> c = {1, 2, 3, 4, 5, 6}, bias = {-100, 0, 500};
  cudaMemcpy(memory.c, c.data(), 24, cudaMemcpyHostToDevice);
  cudaMemcpy(memory.bias, bias.data(), 12, cudaMemcpyHostToDevice);
  p.alpha = 0.5, p.beta = 2;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), (std::vector<float>{40, 53, 66, -86, -97, -108}));
  p.alpha = 1, p.beta = 0, p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), (std::vector<float>{-24, 98, 620, -288, -214, 260}));
  p.epilogue = CUBLASLT_EPILOGUE_RELU_BIAS;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), (std::vector<float>{0, 98, 620, 0, 0, 260}));
  p.epilogue = CUBLASLT_EPILOGUE_GELU, p.bias = false, p.alpha = 1.0 / 128;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  for (size_t i = 0; const float y : result()) {
    const double x = (std::vector<double>{76, 98, 120, -188, -214, -240})[i++] / 128;
    // 4 roundings in f32 of numbers up to 2; the erf formula is 4.7e-4 away.
    EXPECT_NEAR(y, 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x))), 1e-6);
  }
  p = Product();
  p.m = 3, p.n = 2, p.k = 0, p.beta = 1, p.workspace = 0;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), c);
}

TEST_F(EmulatedProduct, RoundsOperandsInTf32) {
  const std::vector<float> a = {1 + 0x1p-11f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                           b = {1 + 0x1p-10f, 0, 0, 0, 1, 0, 0, 0};
  cudaMemcpy(memory.a, a.data(), 48, cudaMemcpyHostToDevice);
  cudaMemcpy(memory.b, b.data(), 32, cudaMemcpyHostToDevice);
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result()[3], 1 + 0x1p-11f);
  p.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result()[0], 1 + 0x1p-10f);
  EXPECT_EQ(result()[3], 1);
}

TEST_F(EmulatedProduct, SumsOperandsForBiasGradients) {
  const auto bias = [&](size_t n) {
    std::vector<float> sums(n);
    EXPECT_EQ(cudaMemcpy(sums.data(), memory.bias, n * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return sums;
  };
  p.bias = true, p.epilogue = CUBLASLT_EPILOGUE_BGRADA;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), (std::vector<float>{76, 98, 120, -188, -214, -240}));
  EXPECT_EQ(bias(3), (std::vector<float>{22, 26, 30}));
  // op(B) = [10 7; 4 1; -2 -5; -8 -11].
  p.op_b = CUBLAS_OP_T, p.epilogue = CUBLASLT_EPILOGUE_BGRADB;
  ASSERT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(result(), (std::vector<float>{-68, -64, -60, -134, -142, -150}));
  EXPECT_EQ(bias(2), (std::vector<float>{4, -8}));
}

// By tools/gpu_lab/records/h100/cublaslt_epilogues.txt. What is not recorded is refused.
TEST_F(EmulatedProduct, HasBiasGradientsInRecordedForms) {
  struct Form {
    int epilogue;
    cublasOperation_t op_a, op_b;
  };
  const auto status = [&](const Form& form) {
    p.bias = true, p.epilogue = form.epilogue, p.op_a = form.op_a, p.op_b = form.op_b;
    return multiply();
  };
  const Form taken[] = {{CUBLASLT_EPILOGUE_BGRADA, CUBLAS_OP_N, CUBLAS_OP_N},
                        {CUBLASLT_EPILOGUE_BGRADA, CUBLAS_OP_N, CUBLAS_OP_T},
                        {CUBLASLT_EPILOGUE_BGRADB, CUBLAS_OP_N, CUBLAS_OP_T}};
  const Form refused[] = {{CUBLASLT_EPILOGUE_BGRADA, CUBLAS_OP_T, CUBLAS_OP_N},
                          {CUBLASLT_EPILOGUE_BGRADA, CUBLAS_OP_T, CUBLAS_OP_T},
                          {CUBLASLT_EPILOGUE_BGRADB, CUBLAS_OP_N, CUBLAS_OP_N},
                          {CUBLASLT_EPILOGUE_BGRADB, CUBLAS_OP_T, CUBLAS_OP_N},
                          {CUBLASLT_EPILOGUE_BGRADB, CUBLAS_OP_T, CUBLAS_OP_T}};
  for (const Form& form : refused) EXPECT_EQ(status(form), CUBLAS_STATUS_NOT_SUPPORTED) << form.epilogue;
  for (const Form& form : taken) {
    EXPECT_EQ(status(form), CUBLAS_STATUS_SUCCESS) << form.epilogue;
    p.bias = false;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE) << form.epilogue;
    p.bias = true, p.bias_type = CUDA_R_16BF;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_INVALID_VALUE) << form.epilogue;
    p.bias_type = -1, p.order_c = p.order_d = CUBLASLT_ORDER_ROW;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED) << form.epilogue;
    p.order_c = p.order_d = CUBLASLT_ORDER_COL, p.batch_a = p.batch_b = p.batch_c = p.batch_d = 2;
    EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_SUPPORTED) << form.epilogue;
    p.batch_a = p.batch_b = p.batch_c = p.batch_d = 1;
  }
  // The gradient is a second result.
  char* const bias = memory.bias;
  memory.bias = memory.d;
  expect_fault(FaultKind::kRace, "operand D");
  memory.bias = memory.b;
  expect_fault(FaultKind::kRace, "operand B");
  memory.bias = bias + 8;  // of 12 bytes
  expect_fault(FaultKind::kOutOfBounds, "operand bias");
  memory.bias = bias;
  EXPECT_EQ(fault(), -1) << text;
}

// In f16, the two halves of the sum are rounded if the caller allows it.
TEST_F(EmulatedProduct, RoundsPartsWhereItMay) {
  const uint16_t a[] = {0x6800, 0x3c00, 0xe800, 0},
                 ones[] = {0x3c00, 0x3c00, 0x3c00, 0x3c00};  // 2048, 1, -2048
  cudaMemcpy(memory.a, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(memory.b, ones, sizeof ones, cudaMemcpyHostToDevice);
  p = calls::kinds()[3].p;
  p.m = p.n = 1, p.k = 4, p.workspace = 0;
  for (const uint32_t mask : {uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), 7u}) {
    calls::Setup s;
    set_up(s, p, memory);
    cublasLtMatmulPreferenceSetAttribute(s.preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &mask, 4);
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 1,
                                             &result, &count),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(run(handle, s, p, &result.algo), CUBLAS_STATUS_SUCCESS);
    uint16_t d;
    cudaMemcpy(&d, memory.d, 2, cudaMemcpyDeviceToHost);
    EXPECT_EQ(d, mask == 7 ? 0 : 0x3c00);
  }
}

// ---- errors that a real device does not report

TEST_F(EmulatedProduct, ReadsOnlyWhatWasWritten) {
  if (kFresh == Byte::kWritten) GTEST_SKIP() << "a sanitizer took the place of the checker";
  EXPECT_EQ(fault(), -1) << text;
  cudaFree(memory.a);
  memory.a = allocate(48, false);
  cudaMemset(memory.a, 0, 47);
  expect_fault(FaultKind::kUnwritten, "operand A");
  cudaMemset(memory.a, 0, 48);
  EXPECT_EQ(fault(), -1) << text;
  cudaFree(memory.c);
  memory.c = allocate(24, false);
  EXPECT_EQ(fault(), -1) << text;  // beta is 0
  p.beta = 1;
  expect_fault(FaultKind::kUnwritten, "operand C");
  p.beta = 0, p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true;
  EXPECT_EQ(fault(), -1) << text;
  cudaFree(memory.bias);
  memory.bias = allocate(12, false);
  expect_fault(FaultKind::kUnwritten, "operand bias");
}

TEST_F(EmulatedProduct, StaysWithinItsBlocks) {
  const auto shrink = [](char*& block, size_t bytes) {
    cudaFree(block);
    block = allocate(bytes);
  };
  shrink(memory.a, 47), expect_fault(FaultKind::kOutOfBounds, "operand A"), shrink(memory.a, 48);
  shrink(memory.b, 31), expect_fault(FaultKind::kOutOfBounds, "operand B"), shrink(memory.b, 32);
  shrink(memory.d, 23), expect_fault(FaultKind::kOutOfBounds, "operand D"), shrink(memory.d, 24);
  EXPECT_EQ(fault(), -1) << text;
  p.lda = 4, expect_fault(FaultKind::kOutOfBounds, "operand A"), p.lda = -1;
  p.ldb = 5, expect_fault(FaultKind::kOutOfBounds, "operand B"), p.ldb = -1;
  p.ldd = 4, expect_fault(FaultKind::kOutOfBounds, "operand D"), p.ldd = -1;
  p.epilogue = CUBLASLT_EPILOGUE_BIAS, p.bias = true;
  shrink(memory.bias, 11), expect_fault(FaultKind::kOutOfBounds, "operand bias"), shrink(memory.bias, 12);
  EXPECT_EQ(fault(), -1) << text;
  p.m = 1, p.n = 1, p.batch_a = p.batch_b = p.batch_c = p.batch_d = 3;
  p.stride_a = 4, p.stride_b = 2, p.stride_c = p.stride_d = 1;
  EXPECT_EQ(fault(), -1) << text;
  p.stride_a = 5, expect_fault(FaultKind::kOutOfBounds, "operand A"), p.stride_a = 4;
  p.stride_b = 3, expect_fault(FaultKind::kOutOfBounds, "operand B"), p.stride_b = 2;
  p.stride_d = 3, expect_fault(FaultKind::kOutOfBounds, "operand D"), p.stride_d = 1;
  p.stride_a = -4, expect_fault(FaultKind::kOutOfBounds, "negative"), p.stride_a = 4;
  shrink(memory.workspace, 1023), expect_fault(FaultKind::kOutOfBounds, "the workspace"),
      shrink(memory.workspace, 1024);
  EXPECT_EQ(fault(), -1) << text;
  char* const freed = memory.b;
  cudaFree(memory.b);
  expect_fault(FaultKind::kOutOfBounds, "freed");
  memory.b = allocate(32);
  EXPECT_NE(freed, memory.b);
}

TEST_F(EmulatedProduct, TakesNoHostMemory) {
  char* const device = memory.a;
  alignas(16) char host[64] = {};
  memory.a = host;
  expect_fault(FaultKind::kHostMemory, "operand A");
  void* pinned = nullptr;
  cudaMallocHost(&pinned, 64);
  memory.a = static_cast<char*>(pinned);
  expect_fault(FaultKind::kHostMemory, "pinned");
  memory.a = device;
  cudaFreeHost(pinned);
  char* const workspace = memory.workspace;
  alignas(256) static char room[1024];
  memory.workspace = room;
  expect_fault(FaultKind::kHostMemory, "workspace");
  memory.workspace = workspace;
}

TEST_F(EmulatedProduct, WritesNothingThatItReads) {
  char *const c = memory.c, *const d = memory.d;
  char* const block = allocate(96);
  char* const a = memory.a;
  memory.a = block, memory.d = block + 44;
  expect_fault(FaultKind::kRace, "operand A");
  memory.d = block + 48;
  EXPECT_EQ(fault(), -1) << text;
  // Columns of D between those of A.
  p.lda = 6, p.ldd = 6, memory.d = block + 12;
  EXPECT_EQ(fault(), -1) << text;
  memory.d = block + 8;
  expect_fault(FaultKind::kRace, "operand A");
  p.lda = p.ldd = -1, memory.a = a;
  memory.c = block, memory.d = block + 4, p.beta = 1;
  expect_fault(FaultKind::kRace, "operand C");
  memory.d = block;
  EXPECT_EQ(fault(), -1) << text;
  p.beta = 0, memory.c = c;
  p.batch_a = p.batch_b = p.batch_c = p.batch_d = 2, p.stride_a = p.stride_b = p.stride_c = 0;
  p.stride_d = 6;
  EXPECT_EQ(fault(), -1) << text;
  p.stride_d = 5;
  expect_fault(FaultKind::kRace, "overlap");
  memory.d = d;
  cudaFree(block);
}

// Sizes from 2^31 on are refused, also those that are not recorded.
TEST_F(EmulatedProduct, HasAtMostSomeRows) {
  const int64_t large = int64_t(1) << 31;
  const auto refuses = [&](auto change) {
    p = Product();
    p.m = p.n = p.k = 1, p.workspace = 0;
    change();
    return multiply() == CUBLAS_STATUS_NOT_SUPPORTED;
  };
  const auto by_rows = [&] { p.order_a = p.order_c = p.order_d = CUBLASLT_ORDER_ROW; };
  EXPECT_TRUE(refuses([&] { p.m = large; }));
  EXPECT_TRUE(refuses([&] { p.n = large; }));
  EXPECT_TRUE(refuses([&] { p.k = large; }));
  EXPECT_TRUE(refuses([&] { by_rows(), p.m = large; }));
  EXPECT_TRUE(refuses([&] { p.lda = large; }));
  EXPECT_TRUE(refuses([&] { p.ldd = large; }));
  EXPECT_FALSE(refuses([&] { by_rows(); }));
  cudaDeviceSynchronize();
}

// Another stream's product uses the same workspace at the same time.
TEST_F(EmulatedProduct, OwnsItsWorkspace) {
  cudaStream_t streams[2];
  for (cudaStream_t& s : streams) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  char *const first = memory.workspace, *const second = allocate(1024, false);
  char *const d = memory.d, *const other = allocate(24, false);
  const uint64_t before = seed();
  int found_shared = 0, found_own = 0;
  for (uint64_t number = 1; number <= 50; ++number) {
    set_seed(number);
    for (const bool shared : {true, false}) {
      FaultScope faults;
      for (int i = 0; i < 2; ++i) {
        memory.d = i ? other : d;
        memory.workspace = i && !shared ? second : first;
        EXPECT_EQ(multiply(streams[i]), CUBLAS_STATUS_SUCCESS);
      }
      cudaDeviceSynchronize();
      (shared ? found_shared : found_own) += !faults.take().empty();
    }
  }
  set_seed(before);
  memory.d = d, memory.workspace = first;
  cudaFree(second), cudaFree(other);
  for (const cudaStream_t s : streams) cudaStreamDestroy(s);
  EXPECT_GT(found_shared, 10);
  EXPECT_EQ(found_own, 0);
}

TEST_F(EmulatedProduct, WaitsInItsStream) {
  // A is written on the stream, behind which the product is queued.
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaFree(memory.a);
  memory.a = allocate(48, false);
  cudaMemsetAsync(memory.a, 0, 48, stream);
  FaultScope faults;
  EXPECT_EQ(multiply(stream), CUBLAS_STATUS_SUCCESS);
  cudaStreamSynchronize(stream);
  EXPECT_TRUE(faults.take().empty());
  EXPECT_EQ(result(), std::vector<float>(6, 0));
  cudaStreamDestroy(stream);
}

// ---- captured, crashing and failing calls

TEST_F(EmulatedProduct, IsCaptured) {
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  const std::vector<float> want = result();
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  cudaMemset(memory.d, 0, 24);
  cudaDeviceSynchronize();
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(multiply(stream), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  EXPECT_EQ(result(), std::vector<float>(6, 0)) << "nothing has run";
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  for (int launch = 0; launch < 2; ++launch) {
    cudaMemset(memory.d, 0, 24);
    cudaDeviceSynchronize();
    EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
    cudaStreamSynchronize(stream);
    EXPECT_EQ(result(), want);
  }
  char* const a = memory.a;
  memory.a = allocate(48);
  cudaFree(a);
  FaultScope faults;
  EXPECT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  cudaStreamSynchronize(stream);
  const std::vector<Fault> found = faults.take();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].text.find("freed"), std::string::npos) << found[0].text;
  // A capture that is no longer valid takes none.
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(multiply(stream), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  cudaGraphExecDestroy(executable);
  cudaStreamDestroy(stream);
}

TEST_F(EmulatedProduct, RefusesWhatCrashes) {
  calls::Setup s;
  set_up(s, p, memory);
  cublasLtMatmulHeuristicResult_t result;
  int count = 0;
  const float one = 1, zero = 0;
  const auto plan = [&](cublasLtHandle_t h, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                        cublasLtMatmulPreference_t preference, int wanted, int* n) {
    return cublasLtMatmulAlgoGetHeuristic(h, desc, a, s.b, s.c, s.d, preference, wanted, &result, n);
  };
  const auto multiply_by = [&](cublasLtHandle_t h, cublasLtMatmulDesc_t desc, const void* alpha,
                               const void* beta, cublasLtMatrixLayout_t d) {
    return cublasLtMatmul(h, desc, alpha, s.pa, s.a, s.pb, s.b, beta, s.pc, s.c, s.pd, d, nullptr, nullptr, 0,
                          nullptr);
  };
  EXPECT_EQ(plan(nullptr, s.operation, s.a, s.preference, 1, &count), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(plan(handle, s.operation, nullptr, s.preference, 1, &count), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(plan(handle, s.operation, s.a, nullptr, 1, &count), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(plan(handle, s.operation, s.a, s.preference, 0, &count), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply_by(nullptr, s.operation, &one, &zero, s.d), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(multiply_by(handle, s.operation, &one, &zero, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtCreate(nullptr), CUBLAS_STATUS_INVALID_VALUE);
  const auto crashes = [](auto call) {
    FaultScope faults;
    EXPECT_NE(call(), CUBLAS_STATUS_SUCCESS);
    const std::vector<Fault> found = faults.take();
    return found.size() == 1 && found[0].kind == FaultKind::kArgument;
  };
  EXPECT_TRUE(crashes([&] { return plan(handle, nullptr, s.a, s.preference, 1, &count); }));
  EXPECT_TRUE(crashes([&] { return plan(handle, s.operation, s.a, s.preference, 1, nullptr); }));
  EXPECT_TRUE(crashes([&] { return multiply_by(handle, nullptr, &one, &zero, s.d); }));
  EXPECT_TRUE(crashes([&] { return multiply_by(handle, s.operation, nullptr, &zero, s.d); }));
  EXPECT_TRUE(crashes([&] { return multiply_by(handle, s.operation, &one, nullptr, s.d); }));
  EXPECT_TRUE(crashes([&] { return multiply_by(handle, s.operation, memory.c, &zero, s.d); }));
  cudaSetDevice(1);
  EXPECT_TRUE(crashes([&] { return plan(handle, s.operation, s.a, s.preference, 1, &count); }));
  EXPECT_TRUE(crashes([&] { return multiply_by(handle, s.operation, &one, &zero, s.d); }));
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaSetDevice(0);
  EXPECT_TRUE(crashes([&] { return run(handle, s, p, nullptr, stream); }));
  cudaStreamDestroy(stream);
}

TEST_F(EmulatedProduct, AlgorithmsAreOfOneProduct) {
  calls::Setup s;
  set_up(s, p, memory);
  cublasLtMatmulHeuristicResult_t result;
  int count = 0;
  ASSERT_EQ(cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 1, &result,
                                           &count),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(handle, s, p, &result.algo), CUBLAS_STATUS_SUCCESS);
  const int64_t ld = 5;
  cublasLtMatrixLayoutSetAttribute(s.b, CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld);
  EXPECT_EQ(run(handle, s, p, &result.algo), CUBLAS_STATUS_NOT_SUPPORTED);
  cudaDeviceSynchronize();
}

TEST_F(EmulatedProduct, FailsAsTheDeviceDoes) {
  fail_call(0, cudaErrorMemoryAllocation);
  cublasLtHandle_t made;
  EXPECT_EQ(cublasLtCreate(&made), CUBLAS_STATUS_NOT_INITIALIZED);
  fail_call_of("cublasLtMatmulAlgoGetHeuristic", 0, CUBLAS_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INTERNAL_ERROR);
  fail_call_of("cublasLtMatmul", 0, CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulPreference_t preference = nullptr;
  fail_call_of("cublasLtMatmulPreferenceCreate", 0, CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(preference, nullptr);
  // From a host function.
  struct Call {
    EmulatedProduct* test;
    cublasStatus_t status;
  } call{this, CUBLAS_STATUS_SUCCESS};
  cudaLaunchHostFunc(
      nullptr,
      [](void* data) {
        auto* const c = static_cast<Call*>(data);
        c->status = c->test->multiply();
      },
      &call);
  cudaDeviceSynchronize();
  EXPECT_NE(call.status, CUBLAS_STATUS_SUCCESS);
  // After a sticky error.
  {
    const auto lock = Runtime::get().lock();
    Runtime::get().sticky = cudaErrorIllegalAddress;
  }
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INTERNAL_ERROR);
  {
    const auto lock = Runtime::get().lock();
    Runtime::get().sticky = cudaSuccess;
  }
}

}  // namespace
