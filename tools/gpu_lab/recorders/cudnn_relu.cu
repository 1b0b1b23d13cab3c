// What becomes of NaN in the relu of a graph of cuDNN's: convolution, bias, relu, in each type, with NaN propagation
// not set, off and on. By each plan: the results of 1 NaN in the image, which 9 * 32 sums have.
#include <cmath>
#include <cstring>

#include "cudnn_graph.h"

namespace {

using namespace graph;

constexpr int64_t kNaN = 9 * 32;

struct Type {
  const char* name;
  cudnnDataType_t type;
  size_t bytes;
  uint64_t one, nan;
};
constexpr Type kTypes[] = {{"f32", CUDNN_DATA_FLOAT, 4, 0x3f800000, 0x7fc00000},
                           {"f64", CUDNN_DATA_DOUBLE, 8, 0x3ff0000000000000, 0x7ff8000000000000},
                           {"f16", CUDNN_DATA_HALF, 2, 0x3c00, 0x7e00},
                           {"bf16", CUDNN_DATA_BFLOAT16, 2, 0x3f80, 0x7fc0}};

// Elements on the device.
struct Elements {
  const Type& t;
  std::vector<char> host;
  void* device = nullptr;

  Elements(const Type& type, int64_t count) : t(type), host(static_cast<size_t>(count) * type.bytes) {
    MUST(cudaMalloc(&device, host.size()));
    for (int64_t i = 0; i < count; ++i) set(i, t.one);
  }
  void set(int64_t i, uint64_t bits) { std::memcpy(&host[static_cast<size_t>(i) * t.bytes], &bits, t.bytes); }
  void up() { MUST(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice)); }
  void down() { MUST(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost)); }
  // How many are NaN, and how many 0.
  std::pair<int64_t, int64_t> special() const {
    int64_t nan = 0, zero = 0;
    for (size_t i = 0; i < host.size(); i += t.bytes) {
      uint64_t bits = 0;
      std::memcpy(&bits, &host[i], t.bytes);
      const uint64_t magnitude = bits & ~(uint64_t{1} << (8 * t.bytes - 1));
      const uint64_t infinity = t.type == CUDNN_DATA_HALF       ? 0x7c00
                                : t.type == CUDNN_DATA_BFLOAT16 ? 0x7f80
                                : t.type == CUDNN_DATA_FLOAT    ? 0x7f800000
                                                                : 0x7ff0000000000000;
      nan += magnitude > infinity, zero += magnitude == 0;
    }
    return {nan, zero};
  }
};

Descriptor rectified(Descriptor x, Descriptor y, cudnnDataType_t compute, int propagation) {
  Descriptor p = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
             d = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  set(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_RELU_FWD);
  set(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  set(p, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, static_cast<double>(INFINITY));
  if (propagation >= 0)
    set(p, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
        static_cast<cudnnNanPropagation_t>(propagation));
  finish(p);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, p);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, x);
  set(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, y);
  finish(d);
  return d;
}

}  // namespace

int main() {
  record::header("NaN in the relu of a convolution's graph", "cuDNN " + std::to_string(cudnnGetVersion()));
  cudnnHandle_t handle;
  record::group = "relu";
  if (!good("cudnnCreate", cudnnCreate(&handle)))
    return record::line("cudnnCreate", "%s", problem.c_str()), 1;
  const Convolution c{"3x3", 2, 16, 12, 32, 3, 1, 1, 1};
  void* space;
  MUST(cudaMalloc(&space, size_t{64} << 20));
  for (const Type& t : kTypes) {
    const cudnnDataType_t compute = t.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    Elements x(t, 2 * 12 * 12 * 16), w(t, 32 * 3 * 3 * 16), b(t, 32), y(t, 2 * 12 * 12 * 32);
    x.set((5 * 12 + 5) * 16 + 3, t.nan);
    x.up(), w.up(), b.up();
    for (const int propagation : {-1, 0, 1}) {
      const std::string asked = record::text("%s, propagation %s", t.name,
                                             propagation < 0 ? "not set"
                                             : propagation   ? "on"
                                                             : "off");
      problem.clear();
      Descriptor sum = tensor(1000, compute, c.y(), true), biased = tensor(1001, compute, c.y(), true),
                 out = tensor('y', t.type, c.y());
      const Descriptor g = operations(
          {convolve(kForward, tensor('x', t.type, c.x()), tensor('w', t.type, c.w()), sum,
                    convolution(c, compute), compute),
           pointwise(CUDNN_POINTWISE_ADD, sum, tensor('b', t.type, {1, c.out, 1, 1}), biased, compute),
           rectified(biased, out, compute, propagation)},
          handle);
      const Descriptor operands = pack({'x', 'w', 'y', 'b'}, {x.device, w.device, y.device, b.device}, space);
      for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
        int done = 0;
        for (Descriptor configuration : configurations(g, mode)) {
          problem.clear();
          const std::string about = describe(configuration);
          if (done == 12 || about.find("runtime-compilation") != std::string::npos) continue;
          Descriptor p = plan(configuration, handle);
          if (!p || workspace_of(p) > (64 << 20)) continue;
          ++done;
          for (int64_t i = 0; i < 2 * 12 * 12 * 32; ++i) y.set(i, t.one);
          y.up();
          const cudnnStatus_t status = cudnnBackendExecute(handle, p, operands);
          y.down();
          const auto [nan, zero] = y.special();
          record::line(asked.c_str(), "%s %s; %s; %lld of %lld NaN stay, %lld results are 0",
                       mode == CUDNN_HEUR_MODE_A ? "A" : "fallback", about.c_str(),
                       cudnnGetErrorString(status), static_cast<long long>(nan), static_cast<long long>(kNaN),
                       static_cast<long long>(zero));
          cudnnBackendDestroyDescriptor(p);
        }
        if (!done) record::line(asked.c_str(), "%s: no plan", mode == CUDNN_HEUR_MODE_A ? "A" : "fallback");
      }
    }
  }
  return 0;
}
