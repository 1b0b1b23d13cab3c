// The comparison's Gradus side: each workload as a Gradus user would write it.
#include "benchmarks/contest.h"
#include "benchmarks/mnist_step.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

Workload repeat(int n, std::function<void()> f, double flops = 0, double bytes = 0) {
  return {n >= 1000 ? "ns" : "ms", n,
          [n, f = std::move(f)] {
            for (int i = 0; i < n; ++i) f();
          },
          flops, bytes};
}

Workload conv(int64_t n, int64_t c, int64_t hw, int64_t o, int64_t k, bool backward) {
  const Tensor x = channels_last(randn({n, c, hw, hw})), w = randn({o, c, k, k});
  const Conv2dOptions options{.padding = k / 2};
  const int64_t p = hw - k + 1 + 2 * (k / 2);
  const double flops = 2.0 * n * o * p * p * c * k * k;
  if (!backward) return repeat(1, [=] { conv2d(x, w, {}, options); }, flops);
  const Tensor dy = channels_last(randn({n, o, p, p}));
  return repeat(1, [=] {
    autograd::grad([&](const std::vector<Tensor>& v) { return conv2d(v[0], v[1], {}, options); }, {x, w}, dy);
  }, 3 * flops);
}

}  // namespace

Workload make_gradus_workload(const std::string& name, int threads) {
  set_num_threads(threads);
  manual_seed(1);
  if (name.starts_with("mnist_cnn train step, batch 64")) {
    auto step = std::make_shared<MnistStep>(64);
    return {"ms", 1, [=] { step->run(); }};
  }
  if (name == "add of 1-element tensors") {
    const Tensor a = ones({1}), b = ones({1});
    return repeat(20000, [=] { add(a, b); });
  }
  if (name == "add of 1-element tensors, recorded") {
    const Tensor a = ones({1}), b = ones({1});
    auto gm = std::make_shared<GradManager>();
    gm->attach({a, b});
    auto recording = std::make_shared<Recording>(gm->record().pause());
    return {"ns", 20000, [=] {
              recording->resume();
              for (int i = 0; i < 20000; ++i) add(a, b);
              recording->pause();
            }};
  }
  if (name == "matmul 1024") {
    const Tensor a = randn({1024, 1024}), b = randn({1024, 1024});
    return repeat(1, [=] { matmul(a, b); }, 2.0 * 1024 * 1024 * 1024);
  }
  if (name == "matmul 64x9216x128") {
    const Tensor a = randn({64, 9216}), b = randn({128, 9216});
    return repeat(10, [=] { matmul(a, t(b)); }, 2.0 * 64 * 9216 * 128);
  }
  if (name == "conv 64x32x26, 64 3x3") return conv(64, 32, 26, 64, 3, false);
  if (name == "conv 64x32x26, 64 3x3, and gradients") return conv(64, 32, 26, 64, 3, true);
  if (name == "conv 16x256x14, 256 3x3") return conv(16, 256, 14, 256, 3, false);
  if (name == "conv 16x256x14, 256 3x3, and gradients") return conv(16, 256, 14, 256, 3, true);
  if (name == "softmax 4096x1000") {
    const Tensor x = randn({4096, 1000});
    return repeat(1, [=] { softmax(x, 1); }, 0, 2.0 * x.nbytes());
  }
  if (name == "sum of 16M") {
    const Tensor x = randn({1 << 24});
    return repeat(1, [=] { sum(x); }, 0, x.nbytes());
  }
  if (name == "sum over rows 65536x256") {
    const Tensor x = randn({65536, 256});
    return repeat(1, [=] { sum(x, {0}); }, 0, x.nbytes());
  }
  if (name == "add of 16M") {
    const Tensor a = randn({1 << 24}), b = randn({1 << 24});
    return repeat(1, [=] { add(a, b); }, 0, 3.0 * a.nbytes());
  }
  if (name == "exp of 16M") {
    const Tensor a = randn({1 << 24});
    return repeat(1, [=] { exp(a); }, 0, 2.0 * a.nbytes());
  }
  return {};
}

}  // namespace gradus::bench
