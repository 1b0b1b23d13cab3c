// Cumulative ops, softmax, argmax and max along a dim against PyTorch's values (inputs: scan.py; tolerances:
// golden_ops.h).
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

using Many = std::vector<Tensor>;

Many both(const ValuesAndIndices& r) { return {r.values, r.indices}; }

std::vector<GoldenOp> all_ops() {
  std::vector<GoldenOp> ops = {
      {"argmax/all", [](X x) { return argmax(x[0]); }},
      {"argmin/all", [](X x) { return argmin(x[0]); }},
      {"cumsum/integers", [](X x) { return cumsum(x[0], 0); }},
      {"cumsum/scalar", [](X x) { return cumsum(x[0], 0); }},
      {"cumsum/empty", [](X x) { return cumsum(x[0], 0); }},
      {"cumprod/integers", [](X x) { return cumprod(x[0], 0); }},
      {"cumprod/zeros", [](X x) { return cumprod(x[0], 1); }},
      {"logcumsumexp/far apart", [](X x) { return logcumsumexp(x[0], 0); }},
      {"logcumsumexp/infinite", [](X x) { return logcumsumexp(x[0], 0); }},
      {"cummax/NaN", [](X x) { return both(cummax(x[0], 0)); }},
      {"cummin/NaN", [](X x) { return both(cummin(x[0], 0)); }},
      {"softmax/long", [](X x) { return softmax(x[0], 1); }},
      {"log_softmax/long", [](X x) { return log_softmax(x[0], 1); }},
      {"softmax/scalar", [](X x) { return softmax(x[0], 0); }},
      {"softmax/empty", [](X x) { return softmax(x[0], 1); }},
      {"softmax/minus infinity", [](X x) { return softmax(x[0], 1); }},
      {"log_softmax/large", [](X x) { return log_softmax(x[0], 1); }},
  };
  for (int d : {-1, 0, 1}) {
    for (int rank : {3, 4}) {
      const std::string name = "/dim " + std::to_string(d) + " of " + std::to_string(rank);
      const auto add = [&](const char* op, auto f) { ops.push_back({op + name, f}); };
      add("cumsum", [d](X x) { return cumsum(x[0], d); });
      add("cumprod", [d](X x) { return cumprod(x[0], d); });
      add("logcumsumexp", [d](X x) { return logcumsumexp(x[0], d); });
      add("cummax", [d](X x) { return both(cummax(x[0], d)); });
      add("cummin", [d](X x) { return both(cummin(x[0], d)); });
      add("softmax", [d](X x) { return softmax(x[0], d); });
      add("log_softmax", [d](X x) { return log_softmax(x[0], d); });
      add("softmin", [d](X x) { return softmin(x[0], d); });
      add("max", [d](X x) { return both(max(x[0], d)); });
      add("min", [d](X x) { return both(min(x[0], d)); });
      add("argmax", [d](X x) { return argmax(x[0], d); });
      add("argmin", [d](X x) { return argmin(x[0], d, true); });
      add("normalize", [d](X x) { return normalize(x[0], {.dim = d}); });
    }
  }
  return ops;
}

}  // namespace

static const bool added = add_golden_ops("scan", all_ops());

}  // namespace gradus::golden
