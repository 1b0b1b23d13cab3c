// Reductions, norms and pairwise distances against PyTorch's values (inputs: reduce.py; tolerances:
// golden_ops.h).
#include <cmath>

#include "gradus/tests/golden/ops/golden_ops.h"

namespace gradus::golden {
namespace {

using Many = std::vector<Tensor>;

// The reduced dims of a case, as in reduce.py.
struct Over {
  const char* name;
  Dims dims;  // empty: all
  bool keepdim;
};
const Over kOver[] = {
    {"all", {}, false},     {"inner", {-1}, false}, {"outer", {0}, true}, {"channels", {0, 2, 3}, true},
    {"middle", {1}, false}, {"one", {0}, false},    {"row", {1}, false}};

template <class A, class B> Many both(const std::pair<A, B>& p) { return {p.first, p.second}; }

std::vector<GoldenOp> reductions() {
  std::vector<GoldenOp> ops;
  for (const auto& [name, d, k] : kOver) {
    const auto add = [&, name = name](const char* op, auto f) {
      ops.push_back({std::string(op) + "/" + name, f});
    };
    add("sum", [d = d, k = k](X x) { return sum(x[0], d, k); });
    add("mean", [d = d, k = k](X x) { return mean(x[0], d, k); });
    add("amax", [d = d, k = k](X x) { return amax(x[0], d, k); });
    add("amin", [d = d, k = k](X x) { return amin(x[0], d, k); });
    add("logsumexp", [d = d, k = k](X x) { return logsumexp(x[0], d, k); });
    add("nansum", [d = d, k = k](X x) { return nansum(x[0], d, k); });
    add("nanmean", [d = d, k = k](X x) { return nanmean(x[0], d, k); });
    add("count_nonzero", [d = d](X x) { return count_nonzero(x[0], d); });
    const bool every_power = std::string(name) == "middle" || std::string(name) == "channels";
    for (const auto& [text, p] : {std::pair<const char*, double>{"0", 0},
                                  {"1", 1},
                                  {"2", 2},
                                  {"3", 3},
                                  {"0.5", 0.5},
                                  {"2.5", 2.5},
                                  {"-1", -1},
                                  {"inf", INFINITY},
                                  {"-inf", -INFINITY}}) {
      if (p != 2 && !every_power) continue;
      ops.push_back({std::string("norm/") + text + " " + name,
                     [d = d, k = k, p = p](X x) { return vector_norm(x[0], p, d, k); }});
    }
    if (std::string(name) == "one") continue;
    add("var", [d = d, k = k](X x) { return var(x[0], d, {.keepdim = k}); });
    add("std", [d = d, k = k](X x) { return gradus::std(x[0], d, {.keepdim = k}); });
    add("var_mean", [d = d, k = k](X x) { return both(var_mean(x[0], d, {.correction = 0, .keepdim = k})); });
    add("std_mean", [d = d, k = k](X x) { return both(std_mean(x[0], d, {.correction = 0, .keepdim = k})); });
  }
  return ops;
}

std::vector<GoldenOp> all_ops() {
  std::vector<GoldenOp> ops = reductions();
  const std::vector<GoldenOp> more = {
      {"sum/empty", [](X x) { return sum(x[0], 1); }},
      {"mean/empty", [](X x) { return mean(x[0], 1); }},
      {"sum/scalar", [](X x) { return sum(x[0]); }},
      {"sum/integers", [](X x) { return sum(x[0], 1); }},
      {"sum/bools", [](X x) { return sum(x[0], 0); }},
      {"prod/integers", [](X x) { return prod(x[0], 1); }},
      {"amax/integers", [](X x) { return amax(x[0], 0); }},
      {"amax/ties", [](X x) { return amax(x[0], 1); }},
      {"max/all", [](X x) { return max(x[0]); }},
      {"min/all", [](X x) { return min(x[0]); }},
      {"norm/zeros 2", [](X x) { return norm(x[0], {1}); }},
      {"norm/zeros 3", [](X x) { return norm(x[0], {1}, 3); }},
      {"norm/some zeros 3", [](X x) { return norm(x[0], {1}, 3); }},
      {"norm/some zeros 0.5", [](X x) { return norm(x[0], {1}, 0.5); }},
      {"norm/ties inf", [](X x) { return norm(x[0], {1}, INFINITY); }},
      {"std/zeros", [](X x) { return gradus::std(x[0], 1); }},
      {"var/one", [](X x) { return var(x[0], 1); }},
      {"prod/False", [](X x) { return prod(x[0], 1); }},
      {"prod/True", [](X x) { return prod(x[0], 1, true); }},
      {"prod/all", [](X x) { return prod(x[0]); }},
      {"prod/zeros", [](X x) { return prod(x[0], 1); }},
      {"aminmax/all",
       [](X x) {
         const auto [a, b] = aminmax(x[0]);
         return Many{a, b};
       }},
      {"aminmax/dim",
       [](X x) {
         const auto [a, b] = aminmax(x[0], 1, true);
         return Many{a, b};
       }},
      {"any/dim", [](X x) { return any(x[0], 1); }},
      {"all/dim", [](X x) { return all(x[0], 1, true); }},
      {"any/all", [](X x) { return any(x[0]); }},
      {"all/empty", [](X x) { return all(x[0]); }},
      {"diff/1", [](X x) { return diff(x[0]); }},
      {"diff/2 dim 0", [](X x) { return diff(x[0], {.n = 2, .dim = 0}); }},
      {"diff/ends", [](X x) { return diff(x[0], {.prepend = x[1], .append = x[2]}); }},
      {"diff/too often", [](X x) { return diff(x[0], {.n = 4}); }},
      {"diff/bools", [](X x) { return diff(x[0]); }},
      {"diff/integers", [](X x) { return diff(x[0]); }},
      {"normalize/p 3", [](X x) { return normalize(x[0], {.p = 3, .dim = 0}); }},
      {"normalize/zeros", [](X x) { return normalize(x[0]); }},
      {"cosine_similarity/rows", [](X x) { return cosine_similarity(x[0], x[1]); }},
      {"cosine_similarity/broadcast", [](X x) { return cosine_similarity(x[0], x[1], {.dim = -1}); }},
      {"cdist/broadcast", [](X x) { return cdist(x[0], x[1]); }},
      {"cdist/no rows", [](X x) { return cdist(x[0], x[1]); }},
      {"cdist/no coordinates", [](X x) { return cdist(x[0], x[1]); }},
  };
  ops.insert(ops.end(), more.begin(), more.end());
  for (const auto& [text, p] : {std::pair<const char*, double>{"0", 0},
                                {"0.5", 0.5},
                                {"1", 1},
                                {"2", 2},
                                {"3", 3},
                                {"inf", INFINITY}}) {
    ops.push_back({std::string("cdist/") + text, [p = p](X x) { return cdist(x[0], x[1], p); }});
    if (p >= 1)
      ops.push_back({std::string("pairwise_distance/") + text,
                     [p = p](X x) { return pairwise_distance(x[0], x[1], {.p = p}); }});
  }
  return ops;
}

}  // namespace

static const bool added = add_golden_ops("reduce", all_ops());

}  // namespace gradus::golden
