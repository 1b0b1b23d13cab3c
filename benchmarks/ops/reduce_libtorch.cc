// Workloads: reductions, scans, softmax and sorting, over all elements, rows, and columns, in LibTorch.
// `compare` (benchmarks/compare.cc) times each in turn with the workload of the same name in
// reduce_gradus.cc. Several entries with one name are variants (layouts), of which the fastest counts.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "benchmarks/workloads.h"

namespace gradus::bench {
namespace {

using torch::Tensor;
using Shape = std::vector<int64_t>;

constexpr int64_t kRows = 32768, kColumns = 1024;

template <class F> Entry timed(const std::string& name, const Shape& shape, F f) {
  return {name, [f, shape] {
            const Tensor x = torch::randn(shape);
            return work([=] {
              torch::NoGradGuard off;
              f(x);
            });
          }};
}

std::string text(const Shape& shape) {
  std::string s = "[";
  for (int64_t n : shape) s += (s.size() > 1 ? "," : "") + std::to_string(n);
  return s + "]";
}

template <class F> Entry backward(const std::string& name, const Shape& shape, F f) {
  return {name, [f, shape] {
            const Tensor y = torch::softmax(torch::randn(shape), shape.size() == 4 ? 1 : -1),
                         dy = torch::randn(shape);
            return work([=] {
              torch::NoGradGuard off;
              f(dy, y);
            });
          }};
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const auto& [where, dims] :
       {std::pair<const char*, Shape>{"all", {0, 1}}, {"rows", {1}}, {"columns", {0}}}) {
    const auto add = [&, where = where](const char* op, auto f) {
      all.push_back(timed(std::string(op) + " over " + where, {kRows, kColumns}, f));
    };
    add("sum", [d = dims](const Tensor& x) { torch::sum(x, d); });
    add("mean", [d = dims](const Tensor& x) { torch::mean(x, d); });
    add("amax", [d = dims](const Tensor& x) { torch::amax(x, d); });
    add("norm", [d = dims](const Tensor& x) { torch::norm(x, 2, d); });
    add("var", [d = dims](const Tensor& x) { torch::var(x, d, true); });
    add("argmax", [d = dims](const Tensor& x) { d.size() == 2 ? torch::argmax(x) : torch::argmax(x, d[0]); });
  }
  all.push_back(timed("cumsum along rows", {kRows, kColumns}, [](const Tensor& x) { torch::cumsum(x, 1); }));
  all.push_back(
      timed("cumsum along columns", {kRows, kColumns}, [](const Tensor& x) { torch::cumsum(x, 0); }));
  all.push_back(
      timed("cumsum of one line", {kRows * kColumns}, [](const Tensor& x) { torch::cumsum(x, 0); }));
  all.push_back(timed("cumprod along rows", {1024, 1024}, [](const Tensor& x) { torch::cumprod(x, 1); }));
  all.push_back(
      timed("logcumsumexp along rows", {1024, 1024}, [](const Tensor& x) { torch::logcumsumexp(x, 1); }));
  all.push_back(timed("cummax along rows", {1024, 1024}, [](const Tensor& x) { torch::cummax(x, 1); }));
  for (const auto& [shape, dim] : {std::pair<Shape, int>{{4096, 1000}, -1},
                                   {{64, 10}, -1},
                                   {{65536, 32}, -1},
                                   {{65536, 11}, -1},
                                   {{16, 64, 56, 56}, 1}}) {
    const std::string at = text(shape);
    all.push_back(timed("softmax " + at, shape, [dim = dim](const Tensor& x) { torch::softmax(x, dim); }));
    all.push_back(
        timed("log_softmax " + at, shape, [dim = dim](const Tensor& x) { torch::log_softmax(x, dim); }));
    all.push_back(backward("softmax backward " + at, shape, [dim = dim](const Tensor& dy, const Tensor& y) {
      torch::_softmax_backward_data(dy, y, dim, torch::kFloat);
    }));
    all.push_back(
        backward("log_softmax backward " + at, shape, [dim = dim](const Tensor& dy, const Tensor& y) {
          torch::_log_softmax_backward_data(dy, y, dim, torch::kFloat);
        }));
  }
  for (const Shape& shape : {Shape{1000, 1000}, {20000, 32}, {1000000}}) {
    all.push_back(timed("sort " + text(shape), shape, [](const Tensor& x) { torch::sort(x); }));
    all.push_back(timed("topk 10 of " + text(shape), shape, [](const Tensor& x) { torch::topk(x, 10); }));
    all.push_back(timed("kthvalue of " + text(shape), shape,
                        [](const Tensor& x) { torch::kthvalue(x, x.size(-1) / 3); }));
    all.push_back(timed("median of " + text(shape), shape, [](const Tensor& x) { torch::median(x, -1); }));
  }
  all.push_back(
      timed("sort columns of [1000,1000]", {1000, 1000}, [](const Tensor& x) { torch::sort(x, 0); }));
  all.push_back(
      timed("unique of 1M", {1000000}, [](const Tensor& x) { at::_unique2(x, true, false, false); }));
  all.push_back(timed("searchsorted of 1M in 1000", {1000000}, [](const Tensor& x) {
    static const Tensor edges = std::get<0>(torch::sort(torch::randn({1000})));
    torch::searchsorted(edges, x);
  }));
  all.push_back(timed("cdist [500,64] [500,64]", {500, 64}, [](const Tensor& x) { torch::cdist(x, x); }));
  all.push_back(timed("normalize [4096,256]", {4096, 256},
                      [](const Tensor& x) { torch::nn::functional::normalize(x); }));
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kLibTorch, "reduce", entries());

}  // namespace gradus::bench
