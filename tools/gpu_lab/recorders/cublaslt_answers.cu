// What cuBLASLt answers to right and wrong matrix products, which epilogues it has for which types, how many
// algorithms its heuristic offers, and whether a product repeats bit for bit.
//
// Matrices are column-major unless said: D[m, n] = op(A) op(B) + C. A line of the first groups holds the
// answers of
//   layouts   creating and setting the descriptors
//   heuristic cublasLtMatmulAlgoGetHeuristic (its status and how many algorithms)
//   matmul    cublasLtMatmul with the first algorithm, or with the one for aligned operands if none was
//             offered
//   then      cudaDeviceSynchronize
//
// A call that loses the device ends the process; another one goes on behind it.
#include <cublasLt.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "cublaslt_calls.h"
#include "recorder.h"

namespace {

using namespace calls;  // NOLINT

cublasLtHandle_t handle;
char *memory, *workspace;  // 1 GiB of random 16-bit patterns that are small numbers in every type; 64 MiB
constexpr size_t kMemory = size_t(1) << 30;

__global__ void random_values(void* p, size_t n, int type, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    uint64_t z = (i + seed) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    const float v = float(int64_t((z ^ (z >> 31)) >> 40)) / 8388608.f - 1.f;
    if (type == CUDA_R_64F) static_cast<double*>(p)[i] = v;
    if (type == CUDA_R_32F) static_cast<float*>(p)[i] = v;
    if (type == CUDA_R_16BF) static_cast<uint16_t*>(p)[i] = uint16_t(__float_as_uint(v) >> 16);
    if (type == CUDA_R_16F)
      static_cast<uint16_t*>(p)[i] = uint16_t((__float_as_uint(v) >> 16 & 0x8000) | 0x3000 | (z & 0x3ff));
  }
}
void randomize(void* p, size_t n, int type, uint64_t seed) { random_values<<<512, 256>>>(p, n, type, seed); }

// Operands lie 128 MiB apart; each of them may be that large.
constexpr size_t kApart = size_t(128) << 20;
Memory operands() {
  const auto at = [](size_t i) { return memory + i * kApart; };
  return {at(0), at(1), at(2), at(3), at(4), at(5), workspace};
}

// For an operand that the heuristic refuses: the algorithm for the plain product.
cublasLtMatmulAlgo_t plain_algo;

// Which call is being made, seen by the parent process; calls before `skipped` were made by processes before.
int *current, skipped = 0, calls_made = 0;

void ask(const char* asked, const Product& p) {
  *current = ++calls_made;
  if (calls_made <= skipped) return;
  Setup s;
  set_up(s, p, operands());
  std::string line = "layouts " + (s.layouts.empty() ? std::string("ok") : s.layouts);
  cublasLtMatmulHeuristicResult_t results[32];
  int count = 0;
  if (s.a && s.b && s.c && s.d && s.operation) {
    const cublasStatus_t h = cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d,
                                                            s.preference, 32, results, &count);
    line += std::string("; heuristic ") + cublasLtGetStatusName(h) + record::text(" %d", count);
    if (count)
      line += record::text(" (workspace %zu, state %s)", results[0].workspaceSize,
                           cublasLtGetStatusName(results[0].state));
    const cublasStatus_t r =
        run(handle, s, p, count && h == CUBLAS_STATUS_SUCCESS ? &results[0].algo : &plain_algo);
    line += std::string("; matmul ") + cublasLtGetStatusName(r);
  }
  const cudaError_t e = cudaDeviceSynchronize();
  line += std::string("; then ") + cudaGetErrorName(e);
  record::line(asked, "%s", line.c_str());
  if (e != cudaSuccess) {
    std::_Exit(4);
  }
}
// Sizes beyond 2^31: only the planning.
void plan(const char* asked, const Product& p) {
  *current = ++calls_made;
  if (calls_made <= skipped) return;
  Setup s;
  set_up(s, p, operands());
  cublasLtMatmulHeuristicResult_t results[4];
  int count = 0;
  const cublasStatus_t h = cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d,
                                                          s.preference, 4, results, &count);
  record::line(asked, "layouts %s; heuristic %s %d", s.layouts.empty() ? "ok" : s.layouts.c_str(),
               cublasLtGetStatusName(h), count);
}

// Some of these end the process.
template <class F> void tell(const char* asked, F call) {
  *current = ++calls_made;
  if (calls_made <= skipped) return;
  const cublasStatus_t e = call();
  record::line(asked, "%s; then %s", cublasLtGetStatusName(e), cudaGetErrorName(cudaDeviceSynchronize()));
}
void handles() {
  Product p;
  Setup s;
  set_up(s, p, operands());
  cublasLtMatmulHeuristicResult_t r[4];
  int count = 0;
  float one = 1, zero = 0;
  tell("heuristic, handle null", [&] {
    return cublasLtMatmulAlgoGetHeuristic(nullptr, s.operation, s.a, s.b, s.c, s.d, s.preference, 4, r,
                                          &count);
  });
  tell("heuristic, operation null", [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, nullptr, s.a, s.b, s.c, s.d, s.preference, 4, r, &count);
  });
  tell("heuristic, layout a null", [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, s.operation, nullptr, s.b, s.c, s.d, s.preference, 4, r,
                                          &count);
  });
  tell("heuristic, layout c null", [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, nullptr, s.d, s.preference, 4, r,
                                          &count);
  });
  tell("heuristic, preference null", [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, nullptr, 4, r, &count);
  });
  tell("heuristic, 0 results", [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 0, r,
                                          &count);
  });
  tell("heuristic, count null", [&] {
    return cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 4, r,
                                          nullptr);
  });
  tell("matmul, handle null", [&] {
    return cublasLtMatmul(nullptr, s.operation, &one, s.pa, s.a, s.pb, s.b, &zero, s.pc, s.c, s.pd, s.d,
                          nullptr, nullptr, 0, nullptr);
  });
  tell("matmul, operation null", [&] {
    return cublasLtMatmul(handle, nullptr, &one, s.pa, s.a, s.pb, s.b, &zero, s.pc, s.c, s.pd, s.d, nullptr,
                          nullptr, 0, nullptr);
  });
  tell("matmul, layout d null", [&] {
    return cublasLtMatmul(handle, s.operation, &one, s.pa, s.a, s.pb, s.b, &zero, s.pc, s.c, s.pd, nullptr,
                          nullptr, nullptr, 0, nullptr);
  });
  tell("matmul, layout c and pointer null, beta 0", [&] {
    return cublasLtMatmul(handle, s.operation, &one, s.pa, s.a, s.pb, s.b, &zero, nullptr, nullptr, s.pd, s.d,
                          nullptr, nullptr, 0, nullptr);
  });
  int32_t v = 3;
  size_t written = 0;
  tell("desc set, size too small",
       [&] { return cublasLtMatmulDescSetAttribute(s.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &v, 1); });
  tell("desc set, size too large",
       [&] { return cublasLtMatmulDescSetAttribute(s.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &v, 8); });
  tell("desc set, unknown attribute", [&] {
    return cublasLtMatmulDescSetAttribute(s.operation, cublasLtMatmulDescAttributes_t(99), &v, 4);
  });
  tell("desc set, null", [&] {
    return cublasLtMatmulDescSetAttribute(s.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, nullptr, 4);
  });
  tell("desc get, size too small", [&] {
    return cublasLtMatmulDescGetAttribute(s.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &v, 1, &written);
  });
  tell("layout set, unknown attribute",
       [&] { return cublasLtMatrixLayoutSetAttribute(s.a, cublasLtMatrixLayoutAttribute_t(99), &v, 4); });
  tell("layout set, order 77",
       [&] { return cublasLtMatrixLayoutSetAttribute(s.a, CUBLASLT_MATRIX_LAYOUT_ORDER, &(v = 77), 4); });
  tell("desc create, null",
       [&] { return cublasLtMatmulDescCreate(nullptr, CUBLAS_COMPUTE_32F, CUDA_R_32F); });
  tell("desc destroy, null", [&] { return cublasLtMatmulDescDestroy(nullptr); });
  tell("layout destroy, null", [&] { return cublasLtMatrixLayoutDestroy(nullptr); });
}

void epilogues() {
  const std::pair<const char*, int> all[] = {
      {"DEFAULT", CUBLASLT_EPILOGUE_DEFAULT},     {"RELU", CUBLASLT_EPILOGUE_RELU},
      {"RELU_AUX", CUBLASLT_EPILOGUE_RELU_AUX},   {"BIAS", CUBLASLT_EPILOGUE_BIAS},
      {"RELU_BIAS", CUBLASLT_EPILOGUE_RELU_BIAS}, {"RELU_AUX_BIAS", CUBLASLT_EPILOGUE_RELU_AUX_BIAS},
      {"DRELU", CUBLASLT_EPILOGUE_DRELU},         {"DRELU_BGRAD", CUBLASLT_EPILOGUE_DRELU_BGRAD},
      {"GELU", CUBLASLT_EPILOGUE_GELU},           {"GELU_AUX", CUBLASLT_EPILOGUE_GELU_AUX},
      {"GELU_BIAS", CUBLASLT_EPILOGUE_GELU_BIAS}, {"GELU_AUX_BIAS", CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
      {"DGELU", CUBLASLT_EPILOGUE_DGELU},         {"DGELU_BGRAD", CUBLASLT_EPILOGUE_DGELU_BGRAD},
      {"BGRADA", CUBLASLT_EPILOGUE_BGRADA},       {"BGRADB", CUBLASLT_EPILOGUE_BGRADB}};
  for (const auto& [type, base] : kinds())
    for (const auto& [name, value] : all)
      for (int form = 0; form < 6; ++form) {
        Product p = base;
        p.m = 256, p.n = 128, p.k = 64;
        p.op_a = form % 3 == 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
        p.op_b = form % 3 == 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
        if (form >= 3) p.m = 257, p.n = 10, p.k = 33;  // odd sizes
        p.epilogue = value;
        p.bias = value & (CUBLASLT_EPILOGUE_BIAS | 16 | 256 | 512);
        p.aux = value & 128;
        if (p.aux) p.aux_ld = form >= 3 ? 384 : 256;
        const char* forms[] = {"NN 256x128x64", "TN 256x128x64", "NT 256x128x64",
                               "NN 257x10x33",  "TN 257x10x33",  "NT 257x10x33"};
        ask(record::text("%s %s %s", type, name, forms[form]).c_str(), p);
      }
}

// GELU of a vector: A is a column of values, B is 1. Which formula is it?
void gelu() {
  for (const auto& [type, base] : kinds()) {
    Product p = base;
    constexpr int kCount = 4096;
    p.m = kCount, p.n = 8, p.k = 8;
    p.epilogue = CUBLASLT_EPILOGUE_GELU;
    Setup s;
    set_up(s, p, operands());
    std::vector<float> x(kCount);
    for (int i = 0; i < kCount; ++i)
      x[i] = float((i - kCount / 2) * (1.0 / 256));  // exact in f16 up to rounding of large ones
    const auto store = [&](char* at, size_t i, float v) {
      std::vector<char> bytes(8);
      if (p.a == CUDA_R_64F) {
        const double d = v;
        std::memcpy(at + 8 * i, &d, 8);
      }
      if (p.a == CUDA_R_32F) std::memcpy(at + 4 * i, &v, 4);
      uint32_t u;
      std::memcpy(&u, &v, 4);
      if (p.a == CUDA_R_16BF) {
        const uint16_t h = uint16_t(u >> 16);
        std::memcpy(at + 2 * i, &h, 2);
      }
      if (p.a == CUDA_R_16F) {
        const int e = int(u >> 23 & 255) - 127 + 15;
        const uint16_t h = uint16_t((u >> 16 & 0x8000) | (v == 0 ? 0 : (e << 10 | (u >> 13 & 0x3ff))));
        std::memcpy(at + 2 * i, &h, 2);
      }
    };
    const auto load = [&](const char* at, size_t i) -> double {
      if (p.a == CUDA_R_64F) {
        double d;
        std::memcpy(&d, at + 8 * i, 8);
        return d;
      }
      float f;
      if (p.a == CUDA_R_32F) {
        std::memcpy(&f, at + 4 * i, 4);
        return f;
      }
      uint16_t h;
      std::memcpy(&h, at + 2 * i, 2);
      if (p.a == CUDA_R_16BF) {
        const uint32_t u = uint32_t(h) << 16;
        std::memcpy(&f, &u, 4);
        return f;
      }
      const int e = h >> 10 & 31;
      const double v = e ? std::ldexp(1024 + (h & 1023), e - 25) : std::ldexp(h & 1023, -24);
      return h & 0x8000 ? -v : v;
    };
    const size_t z = size_of(p.a);
    std::vector<char> a(kCount * 8 * z), b(64 * z), d(kCount * 8 * z);
    for (int i = 0; i < kCount; ++i) store(a.data(), i, x[i]);
    store(b.data(), 0, 1.f);
    for (int j = 1; j < 8; ++j) store(b.data(), 8 * j, 1.f);
    MUST(cudaMemcpy(s.pa, a.data(), a.size(), cudaMemcpyDefault));
    MUST(cudaMemcpy(s.pb, b.data(), b.size(), cudaMemcpyDefault));
    cublasLtMatmulHeuristicResult_t r[1];
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 1, r, &count);
    if (!count) {
      record::line(type, "no algorithm");
      continue;
    }
    const cublasStatus_t e = run(handle, s, p, &r[0].algo);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(d.data(), s.pd, d.size(), cudaMemcpyDefault));
    double from_tanh = 0, from_erf = 0;
    for (int i = 0; i < kCount; ++i) {
      const double v = load(a.data(), i), got = load(d.data(), i);
      const double t = 0.5 * v * (1 + std::tanh(0.79788456080286536 * (v + 0.044715 * v * v * v))),
                   f = 0.5 * v * (1 + std::erf(v * 0.70710678118654752));
      from_tanh = std::max(from_tanh, std::abs(got - t));
      from_erf = std::max(from_erf, std::abs(got - f));
    }
    record::line(type, "%s; largest distance from the tanh formula %.3g, from the erf formula %.3g",
                 cublasLtGetStatusName(e), from_tanh, from_erf);
    randomize(memory, kMemory / 2 / z, p.a, 1);
  }
}

std::string config(const cublasLtMatmulAlgo_t& algo) {
  std::string s;
  for (const auto& [name, at] :
       {std::pair("id", CUBLASLT_ALGO_CONFIG_ID), std::pair("tile", CUBLASLT_ALGO_CONFIG_TILE_ID),
        std::pair("splitk", CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        std::pair("reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
        std::pair("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID)}) {
    int32_t v = -1;
    size_t n;
    cublasLtMatmulAlgoConfigGetAttribute(&algo, at, &v, sizeof v, &n);
    s += record::text("%s %d ", name, v);
  }
  return s;
}

// Layers' shapes as D[m, n] = A[m, k] B[k, n]: what the heuristic offers, whether five runs agree, times of
// the first and of the best of the first eight.
void layers() {
  struct Layer {
    const char* name;
    int64_t m, n, k;
  };
  const Layer all[] = {{"MNIST 9216 to 128, batch 64", 128, 64, 9216},
                       {"MNIST 128 to 10, batch 64", 10, 64, 128},
                       {"its weight's gradient", 9216, 128, 64},
                       {"ResNet 2048 to 1000, batch 256", 1000, 256, 2048},
                       {"ResNet's weight's gradient", 2048, 1000, 256},
                       {"transformer 1024 to 4096, 8192 rows", 4096, 8192, 1024},
                       {"small 64", 64, 64, 64},
                       {"long sum", 128, 128, 262144},
                       {"one row", 1, 4096, 4096},
                       {"odd", 1001, 257, 333}};
  for (const auto& [type, base] : kinds())
    for (const Layer& l : all)
      for (int form = 0; form < 3; ++form) {
        Product p = base;
        p.m = l.m, p.n = l.n, p.k = l.k;
        p.op_a = form == 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
        p.op_b = form == 2 ? CUBLAS_OP_T : CUBLAS_OP_N;
        Setup s;
        set_up(s, p, operands());
        randomize(s.pa, size_t(p.m * p.k), p.a, 1);
        randomize(s.pb, size_t(p.k * p.n), p.b, 2);
        cublasLtMatmulHeuristicResult_t r[16];
        int count = 0;
        const cublasStatus_t h = cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d,
                                                                s.preference, 16, r, &count);
        std::string line = record::text("heuristic %s %d of at most 16", cublasLtGetStatusName(h), count);
        if (count) {
          const size_t bytes = size_t(p.m * p.n) * size_of(p.d);
          std::vector<char> out(bytes);
          uint64_t first = 0;
          bool same = true;
          for (int i = 0; i < 5; ++i) {
            MUST(cudaMemset(s.pd, 0xff, bytes));
            run(handle, s, p, &r[0].algo);
            MUST(cudaMemcpy(out.data(), s.pd, bytes, cudaMemcpyDeviceToHost));
            const uint64_t now = record::hash(out.data(), std::min<size_t>(bytes, 1 << 20));
            if (i == 0) first = now;
            same = same && now == first;
          }
          double times[8], best = 1e9;
          int best_at = 0;
          for (int i = 0; i < std::min(count, 8); ++i) {
            run(handle, s, p, &r[i].algo);
            times[i] = record::median_ms(nullptr, 9, [&] { run(handle, s, p, &r[i].algo); });
            if (times[i] < best) best = times[i], best_at = i;
          }
          line += record::text(
              "; first: %sworkspace %zu; five runs %s; first %.4f ms, best of 8 is number %d with %.4f ms",
              config(r[0].algo).c_str(), r[0].workspaceSize, same ? "agree bit for bit" : "DIFFER", times[0],
              best_at, best);
        }
        record::line(record::text("%s %s %s", type, l.name,
                                  form == 0   ? "NN"
                                  : form == 1 ? "TN"
                                              : "NT")
                         .c_str(),
                     "%s", line.c_str());
      }
}

}  // namespace

int work(const std::string& what);

int main(int argc, char** argv) {
  record::header("Answers of cuBLASLt", "cuBLASLt " + std::to_string(cublasLtGetVersion()));
  current = static_cast<int*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int tries = 0; tries < 300; ++tries) {
    *current = 0;
    const pid_t child = fork();
    if (child == 0) {
      alarm(120);
      std::_Exit(work(argc > 1 ? argv[1] : ""));
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status == 0 || *current <= skipped) return status != 0;
    if (WIFSIGNALED(status))
      record::line("(the process)", "call %d: killed by signal %d", *current, WTERMSIG(status));
    skipped = *current;
  }
}

int work(const std::string& what) {
  MUST(cudaMalloc(&memory, kMemory));
  MUST(cudaMalloc(&workspace, kWorkspace + 4096));
  MUST(cudaMemset(memory, 0, kMemory));
  record::group = "handles";
  const cublasStatus_t e = cublasLtCreate(&handle);
  if (e != CUBLAS_STATUS_SUCCESS) record::line("cublasLtCreate", "%s", cublasLtGetStatusName(e));
  {
    Product p;
    Setup s;
    set_up(s, p, operands());
    cublasLtMatmulHeuristicResult_t r;
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle, s.operation, s.a, s.b, s.c, s.d, s.preference, 1, &r, &count);
    plain_algo = r.algo;
  }
  if (what == "wrong") {
    handles();
    for (const auto& [name, p] : kinds()) {
      static std::string groups[8];
      static int used = 0;
      groups[used] = std::string("calls in ") + name;
      record::group = groups[used++].c_str();
      right_and_wrong_calls(p, ask);
      large_products(p, plan);
    }
  } else if (what == "host") {
    record::group = "operand in the host's pageable memory";
    Product p;
    p.host_a = true;
    ask("p.host_a = true", p);
  } else if (what == "epilogues") {
    record::group = "epilogues";
    epilogues();
    record::group = "gelu";
    gelu();
  } else {
    record::group = "layers";
    layers();
  }
  return 0;
}
