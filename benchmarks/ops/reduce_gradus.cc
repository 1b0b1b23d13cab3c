// Workloads in Gradus: reductions over all elements, rows or columns, scans, softmax, sorting, selection,
// searches and distances. `compare` (benchmarks/compare.cc) times each in turn with the workload of the same
// name in other files of this folder (reduce_libtorch.cc).
#include "benchmarks/workloads.h"
#include "gradus/gradus.h"

namespace gradus::bench {
namespace {

constexpr int64_t kRows = 32768, kColumns = 1024;

// A memory-bound op that reads a matrix and has a small result.
template <class F> Entry read(const std::string& name, F f) {
  return {name, [f] {
            const Tensor x = randn({kRows, kColumns});
            return streaming([=] { f(x); }, static_cast<double>(x.nbytes()), 0);
          }};
}

// A memory-bound op whose result has the input's shape.
template <class F> Entry read_write(const std::string& name, const Shape& shape, F f) {
  return {name, [f, shape] {
            const Tensor x = randn(shape);
            return streaming([=] { f(x); }, static_cast<double>(x.nbytes()), static_cast<double>(x.nbytes()));
          }};
}

// The gradient of softmax or log_softmax, over channels of images and otherwise over the last dim. y is
// softmax for both, as in reduce_libtorch.cc: the values do not change the time.
template <class F> Entry backward(const std::string& name, const Shape& shape, F f) {
  return {name, [f, shape] {
            const Tensor y = softmax(randn(shape), shape.size() == 4 ? 1 : -1), dy = randn(shape);
            const double bytes = static_cast<double>(y.nbytes());
            return streaming([=] { f(dy, y); }, 2 * bytes, bytes);
          }};
}

// An op that is timed without a report of its bytes per second.
template <class F> Entry timed(const std::string& name, const Shape& shape, F f) {
  return {name, [f, shape] {
            const Tensor x = randn(shape);
            return work([=] { f(x); });
          }};
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (const auto& [where, dims] :
       {std::pair<const char*, Dims>{"all", {}}, {"rows", {1}}, {"columns", {0}}}) {
    const auto add = [&, where = where](const char* op, auto f) {
      all.push_back(read(std::string(op) + " over " + where, f));
    };
    add("sum", [d = dims](const Tensor& x) { sum(x, d); });
    add("mean", [d = dims](const Tensor& x) { mean(x, d); });
    add("amax", [d = dims](const Tensor& x) { amax(x, d); });
    add("norm", [d = dims](const Tensor& x) { norm(x, d); });
    add("var", [d = dims](const Tensor& x) { var(x, d); });
    add("argmax", [d = dims](const Tensor& x) { d.empty() ? argmax(x) : argmax(x, d[0]); });
  }
  all.push_back(read_write("cumsum along rows", {kRows, kColumns}, [](const Tensor& x) { cumsum(x, 1); }));
  all.push_back(read_write("cumsum along columns", {kRows, kColumns}, [](const Tensor& x) { cumsum(x, 0); }));
  all.push_back(read_write("cumsum of one line", {kRows * kColumns}, [](const Tensor& x) { cumsum(x, 0); }));
  all.push_back(timed("cumprod along rows", {1024, 1024}, [](const Tensor& x) { cumprod(x, 1); }));
  all.push_back(timed("logcumsumexp along rows", {1024, 1024}, [](const Tensor& x) { logcumsumexp(x, 1); }));
  all.push_back(timed("cummax along rows", {1024, 1024}, [](const Tensor& x) { cummax(x, 1); }));
  for (const auto& [shape, dim] : {std::pair<Shape, int>{{4096, 1000}, -1},
                                   {{64, 10}, -1},
                                   {{65536, 32}, -1},
                                   {{65536, 11}, -1},
                                   {{16, 64, 56, 56}, 1}}) {
    const std::string at = to_string(shape);
    all.push_back(read_write("softmax " + at, shape, [dim = dim](const Tensor& x) { softmax(x, dim); }));
    all.push_back(
        read_write("log_softmax " + at, shape, [dim = dim](const Tensor& x) { log_softmax(x, dim); }));
    all.push_back(backward("softmax backward " + at, shape,
                           [dim = dim](const Tensor& dy, const Tensor& y) { softmax_backward(dy, y, dim); }));
    all.push_back(
        backward("log_softmax backward " + at, shape,
                 [dim = dim](const Tensor& dy, const Tensor& y) { log_softmax_backward(dy, y, dim); }));
  }
  for (const Shape& shape : {Shape{1000, 1000}, {20000, 32}, {1000000}}) {
    all.push_back(timed("sort " + to_string(shape), shape, [](const Tensor& x) { sort(x); }));
    all.push_back(timed("topk 10 of " + to_string(shape), shape, [](const Tensor& x) { topk(x, 10); }));
    all.push_back(timed("kthvalue of " + to_string(shape), shape,
                        [](const Tensor& x) { kthvalue(x, x.size(-1) / 3); }));
    all.push_back(
        timed("median of " + to_string(shape), shape, [](const Tensor& x) { median(x, {.dim = -1}); }));
  }
  all.push_back(
      timed("sort columns of [1000,1000]", {1000, 1000}, [](const Tensor& x) { sort(x, {.dim = 0}); }));
  all.push_back(timed("unique of 1M", {1000000}, [](const Tensor& x) { unique(x); }));
  all.push_back(timed("searchsorted of 1M in 1000", {1000000}, [](const Tensor& x) {
    static const Tensor edges = sort(randn({1000})).values;  // in the first run, which is not timed
    searchsorted(edges, x);
  }));
  all.push_back(timed("cdist [500,64] [500,64]", {500, 64}, [](const Tensor& x) { cdist(x, x); }));
  all.push_back(timed("normalize [4096,256]", {4096, 256}, [](const Tensor& x) { normalize(x); }));
  return all;
}

}  // namespace

static const AddWorkloads added(Side::kGradus, "reduce", entries());

}  // namespace gradus::bench
