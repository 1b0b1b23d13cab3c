// Convolutions planned and run by cuDNN, in one type (the argument: f32, f16, bf16 or f64): engines and
// their notes, times of the heuristic's first plans against each other, errors against sums in f64, whether
// three runs agree bit for bit; whether a plan made from the device's properties alone is the same one and
// can be run; and whether a plan written as JSON can be restored. Graphs that fuse bias, residual and relu
// follow.
//
// Several of these programs may run at once: planning is work of the CPU; for the timing they take turns by
// a lock.
#include <fcntl.h>
#include <sys/file.h>

#include <cmath>

#include "cudnn_graph.h"

namespace {

using namespace graph;

cudnnHandle_t handle;
int lock_file;
char* memory;
constexpr size_t kApart = size_t(256) << 20;
constexpr size_t kWorkspace = size_t(1) << 30;
double deadline;

__device__ double value_of(const void* p, size_t i, int type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return static_cast<const double*>(p)[i];
    case CUDNN_DATA_FLOAT:
      return static_cast<const float*>(p)[i];
    case CUDNN_DATA_BFLOAT16:
      return __uint_as_float(uint32_t(static_cast<const uint16_t*>(p)[i]) << 16);
    default: {
      const uint16_t h = static_cast<const uint16_t*>(p)[i];
      const double v = (h >> 10 & 31) ? ldexp(double(1024 + (h & 1023)), (h >> 10 & 31) - 25)
                                      : ldexp(double(h & 1023), -24);
      return h & 0x8000 ? -v : v;
    }
  }
}
__device__ uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
__global__ void random_values(void* p, size_t n, int type, uint64_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
    const uint64_t z = mix((i + seed) * 0x9E3779B97F4A7C15u);
    const float v = float(int64_t(z >> 40)) / 8388608.f - 1.f;
    if (type == CUDNN_DATA_DOUBLE) static_cast<double*>(p)[i] = v;
    if (type == CUDNN_DATA_FLOAT) static_cast<float*>(p)[i] = v;
    if (type == CUDNN_DATA_BFLOAT16) static_cast<uint16_t*>(p)[i] = uint16_t(__float_as_uint(v) >> 16);
    if (type == CUDNN_DATA_HALF)
      static_cast<uint16_t*>(p)[i] = uint16_t((__float_as_uint(v) >> 16 & 0x8000) | 0x3000 | (z & 0x7ff));
  }
}
__global__ void sum_of_bits(const uint16_t* p, size_t n, unsigned long long* out) {
  unsigned long long s = 0;
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
    s += mix(i * 65536 + p[i] + 1);
  atomicAdd(out, s);
}

struct Shape {
  int64_t n, c, h, k, r, stride, pad, groups, p;
};
// The largest distance of sampled results from the sums in f64, relative to the sum of the terms'
// magnitudes' root.
__global__ void compare(const void* x, const void* w, const void* y, int type, int way, Shape s, size_t count,
                        int samples, double* worst, double* largest) {
  const int sample = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (sample >= samples) return;
  const size_t at = mix(uint64_t(sample) + 77) % count;
  const int64_t cg = s.c / s.groups, kg = s.k / s.groups;
  double sum = 0;
  const void* result = way == 0 ? y : way == 1 ? x : w;
  if (way == 0) {
    const int64_t k = int64_t(at % s.k), q = int64_t(at / s.k % s.p), p = int64_t(at / s.k / s.p % s.p),
                  n = int64_t(at / s.k / s.p / s.p), g = k / kg;
    for (int64_t i = 0; i < s.r; ++i)
      for (int64_t j = 0; j < s.r; ++j) {
        const int64_t h = p * s.stride - s.pad + i, l = q * s.stride - s.pad + j;
        if (h < 0 || l < 0 || h >= s.h || l >= s.h) continue;
        for (int64_t c = 0; c < cg; ++c)
          sum += value_of(x, size_t(((n * s.h + h) * s.h + l) * s.c + g * cg + c), type) *
                 value_of(w, size_t(((k * s.r + i) * s.r + j) * cg + c), type);
      }
  } else if (way == 1) {
    const int64_t c = int64_t(at % s.c), l = int64_t(at / s.c % s.h), h = int64_t(at / s.c / s.h % s.h),
                  n = int64_t(at / s.c / s.h / s.h), g = c / cg;
    for (int64_t i = 0; i < s.r; ++i)
      for (int64_t j = 0; j < s.r; ++j) {
        const int64_t a = h + s.pad - i, b = l + s.pad - j;
        if (a < 0 || b < 0 || a % s.stride || b % s.stride || a / s.stride >= s.p || b / s.stride >= s.p)
          continue;
        for (int64_t k = g * kg; k < (g + 1) * kg; ++k)
          sum += value_of(y, size_t(((n * s.p + a / s.stride) * s.p + b / s.stride) * s.k + k), type) *
                 value_of(w, size_t(((k * s.r + i) * s.r + j) * cg + c % cg), type);
      }
  } else {
    const int64_t c = int64_t(at % cg), j = int64_t(at / cg % s.r), i = int64_t(at / cg / s.r % s.r),
                  k = int64_t(at / cg / s.r / s.r), g = k / kg;
    for (int64_t n = 0; n < s.n; ++n)
      for (int64_t p = 0; p < s.p; ++p)
        for (int64_t q = 0; q < s.p; ++q) {
          const int64_t h = p * s.stride - s.pad + i, l = q * s.stride - s.pad + j;
          if (h < 0 || l < 0 || h >= s.h || l >= s.h) continue;
          sum += value_of(y, size_t(((n * s.p + p) * s.p + q) * s.k + k), type) *
                 value_of(x, size_t(((n * s.h + h) * s.h + l) * s.c + g * cg + c), type);
        }
  }
  const double got = value_of(result, at, type), off = got == got ? fabs(got - sum) : 1e300;
  atomicMax(reinterpret_cast<unsigned long long*>(worst), __double_as_longlong(off));
  atomicMax(reinterpret_cast<unsigned long long*>(largest), __double_as_longlong(fabs(sum)));
}

size_t product(const std::vector<int64_t>& v) {
  size_t n = 1;
  for (int64_t d : v) n *= size_t(d);
  return n;
}

struct Turn {
  Turn() { flock(lock_file, LOCK_EX); }
  ~Turn() {
    cudaDeviceSynchronize();
    flock(lock_file, LOCK_UN);
  }
};

uint64_t bits_of(const void* p, size_t bytes) {
  static unsigned long long* sum = nullptr;
  if (!sum) MUST(cudaMalloc(&sum, 8));
  MUST(cudaMemset(sum, 0, 8));
  sum_of_bits<<<256, 256>>>(static_cast<const uint16_t*>(p), bytes / 2, sum);
  unsigned long long s = 0;
  MUST(cudaMemcpy(&s, sum, 8, cudaMemcpyDefault));
  return s;
}

struct Run {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  bool repeats = true;
  double ms = 0;
  uint64_t bits = 0;
};
Run run(Descriptor plan, Descriptor pack, void* result, size_t bytes, bool timed) {
  Turn turn;
  Run r;
  for (int i = 0; i < 3; ++i) {
    MUST(cudaMemset(result, 0xff, bytes));
    r.status = cudnnBackendExecute(handle, plan, pack);
    if (r.status != CUDNN_STATUS_SUCCESS) {
      good("execute", r.status);
      return r;
    }
    const uint64_t now = bits_of(result, bytes);
    if (i && now != r.bits) r.repeats = false;
    r.bits = now;
  }
  if (timed) r.ms = record::median_ms(nullptr, 11, [&] { cudnnBackendExecute(handle, plan, pack); });
  return r;
}

void one(const Convolution& c, Direction way, cudnnDataType_t type, const char* type_name,
         Descriptor device) {
  const size_t width = type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
  const cudnnDataType_t compute = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const std::string asked = record::text("%s %s %s", c.name, type_name, kDirections[way]);
  void *x = memory, *w = memory + kApart, *y = memory + 2 * kApart, *space = memory + 3 * kApart;
  const size_t nx = product(c.x()), nw = product(c.w()), ny = product(c.y());
  if (nx * width > kApart || ny * width > kApart) {
    record::line(asked.c_str(), "left out: too large for this program");
    return;
  }
  void* result = way == kForward ? y : way == kData ? x : w;
  const size_t count = way == kForward ? ny : way == kData ? nx : nw;
  {
    Turn turn;
    random_values<<<512, 256>>>(x, nx, type, 1);
    random_values<<<512, 256>>>(w, nw, type, 2);
    random_values<<<512, 256>>>(y, ny, type, 3);
  }
  problem.clear();
  const auto graph_for = [&](cudnnHandle_t h) {
    Descriptor tx = tensor('x', type, c.x()), tw = tensor('w', type, c.w()), ty = tensor('y', type, c.y());
    return operations({convolve(way, tx, tw, ty, convolution(c, compute), compute)}, h);
  };
  const double t0 = record::seconds();
  const std::vector<Descriptor> configs = configurations(graph_for(handle), CUDNN_HEUR_MODE_A);
  const double t1 = record::seconds();
  const std::vector<Descriptor> without = configurations(graph_for(nullptr), CUDNN_HEUR_MODE_A, device);
  bool same = configs.size() == without.size();
  for (size_t i = 0; i < configs.size() && same; ++i)
    same = describe(configs[i], false) == describe(without[i], false);
  record::line(asked.c_str(),
               "heuristic A: %zu configurations in %.0f ms; from properties alone: %zu, %s%s%s",
               configs.size(), (t1 - t0) * 1e3, without.size(),
               same ? "the same engines and knobs in the same order" : "DIFFERENT",
               problem.empty() ? "" : "; problem: ", problem.c_str());
  const Descriptor operands = pack({'x', 'w', 'y'}, {x, w, y}, space);
  int finalized = 0, exact = 0;
  uint64_t first_bits = 0;
  const int wanted = record::seconds() > deadline ? 1 : 3;
  for (size_t i = 0; i < configs.size(); ++i) {
    const std::string about = describe(configs[i]);
    const bool tensor_core = about.find("tensor-core") != std::string::npos;
    const bool extra = finalized >= wanted;
    if (extra && (type != CUDNN_DATA_FLOAT || tensor_core || exact >= 1)) continue;
    problem.clear();
    const double from = record::seconds();
    Descriptor p = plan(configs[i], handle);
    const double planned = record::seconds() - from;
    if (!p) {
      record::line(asked.c_str(), "  number %zu %s: refused in %.0f ms: %s", i, about.c_str(), planned * 1e3,
                   problem.c_str());
      continue;
    }
    ++finalized;
    if (!tensor_core) ++exact;
    const int64_t bytes = workspace_of(p);
    if (size_t(bytes) > kWorkspace) {
      record::line(asked.c_str(), "  number %zu %s: workspace %lld is too large for this program", i,
                   about.c_str(), static_cast<long long>(bytes));
      continue;
    }
    problem.clear();
    const Run r = run(p, operands, result, count * width, true);
    double* worst = reinterpret_cast<double*>(memory + 3 * kApart + kWorkspace);
    double errors[2] = {0, 0};
    {
      Turn turn;
      MUST(cudaMemset(worst, 0, 16));
      const Shape s{c.n, c.c, c.size, c.out, c.kernel, c.stride, c.padding, c.groups, c.out_size()};
      const int samples = way == kFilter ? 256 : 4096;
      compare<<<(samples + 63) / 64, 64>>>(x, w, y, type, way, s, count, samples, worst, worst + 1);
      MUST(cudaMemcpy(errors, worst, 16, cudaMemcpyDefault));
    }
    record::line(asked.c_str(),
                 "  number %zu %s; workspace %lld; planned in %.0f ms; %s; %.4f ms, %.1f TFLOP/s; error %.2g "
                 "of the largest; three runs %s",
                 i, about.c_str(), static_cast<long long>(bytes), planned * 1e3,
                 cudnnGetErrorString(r.status), r.ms, c.flops() / r.ms / 1e9, errors[0] / errors[1],
                 r.repeats ? "agree bit for bit" : "DIFFER");
    if (finalized == 1) {
      first_bits = r.bits;
      problem.clear();
      const std::string json = json_of(p);
      const double t = record::seconds();
      Descriptor back = json.empty() ? nullptr : restored(json, handle);
      const double took = record::seconds() - t;
      const Run again = back ? run(back, operands, result, count * width, false) : Run{};
      record::line(asked.c_str(), "  restored from %zu bytes of JSON in %.0f ms: %s %s%s", json.size(),
                   took * 1e3, back ? cudnnGetErrorString(again.status) : "refused",
                   back && again.bits == first_bits ? "with the same bits" : "NOT the same bits",
                   problem.c_str());
      if (c.name[0] == 'M' && way == kForward) record::line(asked.c_str(), "  its JSON: %s", json.c_str());
      problem.clear();
      Descriptor alone = i < without.size() ? plan(without[i], nullptr, device) : nullptr;
      const Run third = alone ? run(alone, operands, result, count * width, false) : Run{};
      record::line(asked.c_str(), "  planned from properties alone: %s %s%s, workspace %lld",
                   alone ? cudnnGetErrorString(third.status) : "refused",
                   alone && third.bits == first_bits ? "with the same bits" : "NOT the same bits",
                   problem.c_str(), alone ? static_cast<long long>(workspace_of(alone)) : 0LL);
      for (Descriptor d : {back, alone})
        if (d) cudnnBackendDestroyDescriptor(d);
    }
    cudnnBackendDestroyDescriptor(p);
  }
  if (!finalized) record::line(asked.c_str(), "  no plan at all");
  for (Descriptor d : configs) cudnnBackendDestroyDescriptor(d);
  for (Descriptor d : without) cudnnBackendDestroyDescriptor(d);
}

// conv, then optionally scale, bias, residual, relu: each by one value per channel except the residual.
void fused(const Convolution& c, cudnnDataType_t type, const char* type_name, bool scale, bool bias,
           bool residual, bool relu, Descriptor device) {
  const cudnnDataType_t compute = type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const size_t width = type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2;
  const std::string asked =
      record::text("%s %s conv%s%s%s%s", c.name, type_name, scale ? " scale" : "", bias ? " bias" : "",
                   residual ? " residual" : "", relu ? " relu" : "");
  problem.clear();
  const auto build = [&](cudnnHandle_t h) {
    const std::vector<int64_t> channel = {1, c.out, 1, 1};
    std::vector<Descriptor> ops;
    Descriptor x = tensor('x', type, c.x()), w = tensor('w', type, c.w());
    int64_t id = 1000;
    int left = int(scale) + int(bias) + int(residual) + int(relu);
    const auto next = [&] {
      return left-- == 0 ? tensor('y', type, c.y()) : tensor(id++, compute, c.y(), true);
    };
    Descriptor now = next();
    ops.push_back(convolve(kForward, x, w, now, convolution(c, compute), compute));
    const auto add = [&](cudnnPointwiseMode_t mode, Descriptor other) {
      Descriptor to = next();
      ops.push_back(pointwise(mode, now, other, to, compute));
      now = to;
    };
    if (scale) add(CUDNN_POINTWISE_MUL, tensor('s', type, channel));
    if (bias) add(CUDNN_POINTWISE_ADD, tensor('b', type, channel));
    if (residual) add(CUDNN_POINTWISE_ADD, tensor('r', type, c.y()));
    if (relu) add(CUDNN_POINTWISE_RELU_FWD, nullptr);
    return operations(ops, h);
  };
  const std::vector<Descriptor> configs = configurations(build(handle), CUDNN_HEUR_MODE_A),
                                without = configurations(build(nullptr), CUDNN_HEUR_MODE_A, device);
  bool same = configs.size() == without.size();
  for (size_t i = 0; i < configs.size() && same; ++i)
    same = describe(configs[i], false) == describe(without[i], false);
  record::line(asked.c_str(), "heuristic A: %zu configurations; from properties alone: %s%s%s",
               configs.size(), same ? "the same" : "DIFFERENT",
               problem.empty() ? "" : "; problem: ", problem.c_str());
  char *x = memory, *w = memory + kApart, *y = memory + 2 * kApart, *space = memory + 3 * kApart,
       *r = memory + 3 * kApart + kWorkspace + 4096;
  char *s = r + kApart, *b = s + 65536;
  {
    Turn turn;
    random_values<<<512, 256>>>(x, product(c.x()), type, 1);
    random_values<<<512, 256>>>(w, product(c.w()), type, 2);
    random_values<<<512, 256>>>(r, product(c.y()), type, 3);
    random_values<<<512, 256>>>(s, size_t(c.out), type, 4);
    random_values<<<512, 256>>>(b, size_t(c.out), type, 5);
  }
  std::vector<int64_t> ids = {'x', 'w', 'y'};
  std::vector<void*> pointers = {x, w, y};
  if (scale) ids.push_back('s'), pointers.push_back(s);
  if (bias) ids.push_back('b'), pointers.push_back(b);
  if (residual) ids.push_back('r'), pointers.push_back(r);
  const Descriptor operands = pack(ids, pointers, space);
  int done = 0;
  for (size_t i = 0; i < configs.size() && done < 2; ++i) {
    problem.clear();
    const double from = record::seconds();
    Descriptor p = plan(configs[i], handle);
    const double planned = record::seconds() - from;
    if (!p) {
      record::line(asked.c_str(), "  number %zu %s: refused: %s", i, describe(configs[i]).c_str(),
                   problem.c_str());
      continue;
    }
    ++done;
    const Run now = run(p, operands, y, product(c.y()) * width, true);
    std::string more;
    if (done == 1) {
      const std::string json = json_of(p);
      const double t = record::seconds();
      Descriptor back = json.empty() ? nullptr : restored(json, handle);
      const double took = record::seconds() - t;
      const Run again = back ? run(back, operands, y, product(c.y()) * width, false) : Run{};
      more = record::text("; restored from %zu bytes in %.0f ms: %s", json.size(), took * 1e3,
                          back && again.bits == now.bits ? "same bits" : "NOT the same");
      Descriptor alone = i < without.size() ? plan(without[i], nullptr, device) : nullptr;
      const Run third = alone ? run(alone, operands, y, product(c.y()) * width, false) : Run{};
      more += record::text("; from properties alone: %s",
                           alone && third.bits == now.bits ? "same bits" : "NOT the same");
    }
    record::line(asked.c_str(),
                 "  number %zu %s; workspace %lld; planned in %.0f ms; %s; %.4f ms; three runs %s%s%s", i,
                 describe(configs[i]).c_str(), static_cast<long long>(workspace_of(p)), planned * 1e3,
                 cudnnGetErrorString(now.status), now.ms, now.repeats ? "agree" : "DIFFER", more.c_str(),
                 problem.c_str());
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string name = argv[1];
  const cudnnDataType_t type = name == "f64"    ? CUDNN_DATA_DOUBLE
                               : name == "f16"  ? CUDNN_DATA_HALF
                               : name == "bf16" ? CUDNN_DATA_BFLOAT16
                                                : CUDNN_DATA_FLOAT;
  record::header(("Convolutions planned and run by cuDNN in " + name).c_str(),
                 "cuDNN " + std::to_string(cudnnGetVersion()));
  lock_file = open("/tmp/gradus_recorder.lock", O_CREAT | O_RDWR, 0600);
  deadline = record::seconds() + std::atof(argv[2]);
  MUST(cudaMalloc(&memory, 5 * kApart + kWorkspace + 65536));
  record::group = "handle";
  record::line("cudnnCreate", "%s", cudnnGetErrorString(cudnnCreate(&handle)));
  const Descriptor device = properties(properties_of(handle));
  record::group = "fused";
  const Convolution resnet{"ResNet 64 to 64, 3x3 at 56", 32, 64, 56, 64, 3, 1, 1, 1},
      deep{"ResNet 512 to 512, 3x3 at 7", 32, 512, 7, 512, 3, 1, 1, 1},
      mnist{"MNIST 32 to 64, 3x3", 64, 32, 26, 64, 3, 1, 0, 1},
      pointwise_conv{"ResNet 256 to 64, 1x1 at 56", 32, 256, 56, 64, 1, 1, 0, 1};
  for (const Convolution& c : {mnist, resnet, deep, pointwise_conv}) {
    fused(c, type, name.c_str(), false, false, false, false, device);
    fused(c, type, name.c_str(), false, true, false, false, device);
    fused(c, type, name.c_str(), false, true, false, true, device);
    fused(c, type, name.c_str(), true, true, true, true, device);
  }
  record::group = "convolution";
  const Convolution all[] = {{"MNIST 1 to 32, 3x3", 64, 1, 28, 32, 3, 1, 0, 1},
                             mnist,
                             {"ResNet 3 to 64, 7x7 stride 2 at 224", 32, 3, 224, 64, 7, 2, 3, 1},
                             resnet,
                             {"ResNet 64 to 128, 3x3 stride 2 at 56", 32, 64, 56, 128, 3, 2, 1, 1},
                             {"ResNet 256 to 256, 3x3 at 14", 32, 256, 14, 256, 3, 1, 1, 1},
                             deep,
                             {"ResNet 64 to 256, 1x1 at 56", 32, 64, 56, 256, 1, 1, 0, 1},
                             pointwise_conv,
                             {"ResNet 256 to 512, 1x1 stride 2 at 56", 32, 256, 56, 512, 1, 2, 0, 1},
                             {"ResNet 1024 to 256, 1x1 at 14", 32, 1024, 14, 256, 1, 1, 0, 1},
                             {"DCGAN 3 to 64, 4x4 stride 2 at 64", 64, 3, 64, 64, 4, 2, 1, 1},
                             {"DCGAN 128 to 256, 4x4 stride 2 at 16", 64, 128, 16, 256, 4, 2, 1, 1},
                             {"depthwise 64, 3x3 at 56", 32, 64, 56, 64, 3, 1, 1, 64},
                             {"odd 5 to 7, 3x3 at 9", 2, 5, 9, 7, 3, 1, 1, 1}};
  for (const Convolution& c : all)
    for (Direction way : {kForward, kData, kFilter}) one(c, way, type, name.c_str(), device);
}
