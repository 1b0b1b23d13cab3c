// Sorting, selection, unique, histograms and searches against PyTorch's values and gradients, where the file
// has them (inputs: sort.py; tolerances: golden_ops.h). True or False at the end of a case's name is the op's
// flag: descending, largest, right or invert. topk/special and mode/values compare values only: of equal
// elements, PyTorch may name any index.
#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

using Many = std::vector<Tensor>;

Many both(const ValuesAndIndices& r) { return {r.values, r.indices}; }
Many all_of(const UniqueResult& r) { return {r.values, r.inverse, r.counts}; }

std::vector<GoldenOp> all_ops() {
  std::vector<GoldenOp> ops = {
      {"sort/scalar", [](X x) { return both(sort(x[0])); }},
      {"sort/empty", [](X x) { return both(sort(x[0])); }},
      {"topk/all", [](X x) { return both(topk(x[0], 6)); }},
      {"topk/none", [](X x) { return both(topk(x[0], 0)); }},
      {"median/all", [](X x) { return median(x[0]); }},
      {"median/NaN", [](X x) { return both(median(x[0], {.dim = 0})); }},
      {"median/NaN of all", [](X x) { return median(x[0]); }},
      {"median/one", [](X x) { return median(x[0]); }},
      {"median/empty", [](X x) { return median(x[0]); }},
      {"median/integers", [](X x) { return median(x[0]); }},
      {"nanmedian/NaN", [](X x) { return both(nanmedian(x[0], {.dim = 0})); }},
      {"nanmedian/all", [](X x) { return nanmedian(x[0]); }},
      {"mode/values", [](X x) { return mode(x[0], {.dim = 1}).values; }},
      {"unique_consecutive/dim 1",
       [](X x) {
         return all_of(unique_consecutive(x[0], {.return_inverse = true, .return_counts = true, .dim = 1}));
       }},
      {"bincount/plain", [](X x) { return bincount(x[0]); }},
      {"bincount/minlength", [](X x) { return bincount(x[0], {.minlength = 9}); }},
      {"bincount/empty", [](X x) { return bincount(x[0], {.minlength = 3}); }},
      {"bincount/weights", [](X x) { return bincount(x[0], {.weights = x[1]}); }},
      {"bincount/integer weights", [](X x) { return bincount(x[0], {.weights = x[1]}); }},
      {"histc/range", [](X x) { return histc(x[0], {.bins = 8, .min = -1, .max = 1}); }},
      {"histc/own range", [](X x) { return histc(x[0], {.bins = 8}); }},
      {"histc/alike", [](X x) { return histc(x[0], {.bins = 4}); }},
      {"isin/empty", [](X x) { return isin(x[0], x[1]); }},
  };
  for (const char* name : {"integers", "floats", "empty", "one", "bools"}) {
    ops.push_back({std::string("unique/") + name, [](X x) {
                     return all_of(unique(x[0], {.return_inverse = true, .return_counts = true}));
                   }});
    ops.push_back({std::string("unique_consecutive/") + name, [](X x) {
                     return all_of(unique_consecutive(x[0], {.return_inverse = true, .return_counts = true}));
                   }});
  }
  for (int d : {0, 1})
    ops.push_back({"unique/dim " + std::to_string(d), [d](X x) {
                     return all_of(unique(x[0], {.return_inverse = true, .return_counts = true, .dim = d}));
                   }});
  for (bool flag : {false, true}) {
    const std::string yes = flag ? "True" : "False";
    const auto ordered = [flag](X x) { return both(sort(x[0], {.descending = flag})); };
    for (const char* name : {"sort/special ", "sort/long ", "sort/integers ", "sort/bools "})
      ops.push_back({name + yes, ordered});
    ops.push_back({"topk/special " + yes, [flag](X x) { return topk(x[0], 4, {.largest = flag}).values; }});
    ops.push_back(
        {"topk/few of many " + yes, [flag](X x) { return both(topk(x[0], 5, {.largest = flag})); }});
    const auto search = [flag](X x) { return searchsorted(x[0], x[1], {.right = flag}); };
    ops.push_back({"searchsorted/" + yes, search});
    ops.push_back({"searchsorted/lines " + yes, search});
    ops.push_back({"bucketize/" + yes, [flag](X x) { return bucketize(x[0], x[1], {.right = flag}); }});
    const auto among = [flag](X x) { return isin(x[0], x[1], {.invert = flag}); };
    ops.push_back({"isin/" + yes, among});
    ops.push_back({"isin/NaN " + yes, among});
  }
  for (int d : {-1, 0, 1}) {
    for (int rank : {3, 4}) {
      const std::string name = "dim " + std::to_string(d) + " of " + std::to_string(rank);
      for (bool flag : {false, true}) {
        const std::string at = name + (flag ? " True" : " False");
        const SortOptions o{.dim = d, .descending = flag};
        ops.push_back({"sort/" + at, [o](X x) { return both(sort(x[0], o)); }});
        ops.push_back({"sort/ties " + at, [o](X x) { return both(sort(x[0], o)); }});
        ops.push_back({"argsort/" + at, [o](X x) { return argsort(x[0], o); }});
        ops.push_back(
            {"topk/" + at, [d, flag](X x) { return both(topk(x[0], 2, {.dim = d, .largest = flag})); }});
      }
      ops.push_back({"kthvalue/" + name, [d](X x) { return both(kthvalue(x[0], 2, {.dim = d})); }});
      ops.push_back({"kthvalue/kept " + name,
                     [d](X x) { return both(kthvalue(x[0], 1, {.dim = d, .keepdim = true})); }});
      ops.push_back({"median/" + name, [d](X x) { return both(median(x[0], {.dim = d})); }});
      ops.push_back(
          {"nanmedian/" + name, [d](X x) { return both(nanmedian(x[0], {.dim = d, .keepdim = true})); }});
      ops.push_back({"mode/" + name, [d](X x) { return both(mode(x[0], {.dim = d})); }});
    }
  }
  return ops;
}

}  // namespace

static const bool added = add_golden_ops("sort", all_ops());

}  // namespace gradus::golden
