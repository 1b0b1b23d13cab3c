// The real cuDNN, if installed, recommends engines for the graphs of attention and of its gradients, on an H100. No GPU is
// needed, but a driver's library: the toolkit's stub. Its functions fail, so no plan is finished.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "gradus/tensor/cuda/cudnn/attention.h"

namespace gradus {
namespace {

// [B,H,tokens,columns] with heads in the rows of [B,tokens,H columns].
Tensor heads(int64_t B, int64_t H, int64_t tokens, int64_t columns, DType dtype) {
  return empty_strided({B, H, tokens, columns}, {tokens * H * columns, columns, H * columns, 1},
                       {dtype, Device::parse("meta")});
}

struct AttentionPlans : testing::Test {
  void SetUp() override {
    const char* const home = std::getenv("CUDA_HOME");
    const std::string stub = std::string(home ? home : "/usr/local/cuda") + "/lib64/stubs/libcuda.so";
    if (!dlopen("libcuda.so.1", RTLD_NOW) && !dlopen(stub.c_str(), RTLD_NOW)) GTEST_SKIP() << dlerror();
    try {
      library = &cuda::cudnn("attention");
    } catch (const DeviceError& e) {
      GTEST_SKIP() << e.what();
    }
    std::ifstream in("tests/cuda/runtime/h100_properties.json");
    const std::string json((std::istreambuf_iterator<char>(in)), {});
    cudnnBackendDescriptor_t made = nullptr;
    ASSERT_EQ(library->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made),
              CUDNN_STATUS_SUCCESS);
    properties = {*library, made};
    ASSERT_EQ(
        library->cudnnBackendSetAttribute(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                          static_cast<int64_t>(json.size()), json.data()),
        CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(library->cudnnBackendFinalize(made), CUDNN_STATUS_SUCCESS);
  }

  const cuda::Cudnn* library = nullptr;
  cuda::Descriptor properties;
};

TEST_F(AttentionPlans, AreThereOnH100) {
  const struct {
    int64_t B, H, L, S, E, V;
  } shapes[] = {{8, 12, 1024, 1024, 64, 64},
                {1, 1, 64, 128, 8, 8},
                {2, 3, 80, 256, 16, 24},
                {2, 2, 200, 128, 128, 128}};
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const auto& [B, H, L, S, E, V] : shapes) {
      for (const bool causal : {false, true}) {
        for (const bool is_backward : {false, true}) {
          cuda::FusedAttention a{.is_backward = is_backward, .causal = causal};
          a.q = heads(B, H, L, E, dtype), a.k = heads(B, H, S, E, dtype), a.v = heads(B, H, S, V, dtype);
          a.y = heads(B, H, L, V, dtype), a.logsumexp = empty({B, H, L, 1}, {DType::kF32, a.q.device()});
          if (is_backward) a.dy = a.y, a.dq = a.q, a.dk = a.k, a.dv = a.v;
          EXPECT_GT(cuda::count_attention_engines("attention", *library, a, properties), 0)
              << describe(a.q) << ", k " << describe(a.k) << ", v " << describe(a.v) << ", causal " << causal
              << ", backward " << is_backward;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gradus
