// Rows of the op test table for attention and for the LSTM and GRU cells: sample shapes, references in f64
// loops, errors. Each row is tested against its f64 reference, its gradients against difference quotients;
// op_table.h explains the fields.
#include <cmath>

#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

struct Attention {
  const char* name;
  // mask: bool, true where a query sees a key. additive: a float mask that is added to the scores.
  bool mask = false, additive = false, causal = false;
  double scale = 0;  // 0: 1 / sqrt(E)
};

// q[B,L,E], k[B,S,E], v[B,S,V], mask[L,S] -> y[B,L,V] and w[B,L,S].
std::pair<Array, Array> attention_of(A x, const Attention& how) {
  const Array &q = x[0], &k = x[1], &v = x[2];
  const int64_t B = q.size(0), L = q.size(1), E = q.size(2), S = k.size(1), V = v.size(2);
  Array y(Shape{B, L, V}), w(Shape{B, L, S});
  const double scale = how.scale != 0 ? how.scale : E > 0 ? 1 / std::sqrt(double(E)) : 1;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t l = 0; l < L; ++l) {
      double total = 0;
      for (int64_t s = 0; s < S; ++s) {
        double score = 0;
        for (int64_t e = 0; e < E; ++e) score += q.at({b, l, e}) * k.at({b, s, e});
        score *= scale;
        if (how.additive) score += x[3].at({l, s});
        const bool seen = !(how.mask && x[3].at({l, s}) == 0) && !(how.causal && s > l);
        total += w.at({b, l, s}) = seen ? std::exp(score) : 0;
      }
      for (int64_t s = 0; s < S; ++s) {
        w.at({b, l, s}) /= total;
        for (int64_t c = 0; c < V; ++c) y.at({b, l, c}) += w.at({b, l, s}) * v.at({b, s, c});
      }
    }
  }
  return {y, w};
}

// Adds a row of each op of attention; `more` holds the mask, if there is one.
void add_attention(const Attention& how, const Sample& more = {}) {
  Sample sample{in({2, 3, 4}), in({2, 5, 4}), in({2, 5, 3})},
      one{in({1, 1, 1}), in({1, 1, 1}), in({1, 1, 1})}, none{in({0, 3, 4}), in({0, 5, 4}), in({0, 5, 3})};
  std::vector<Sample> samples{sample};
  if (more.empty()) samples = {sample, one, none};
  for (const Input& i : more) samples[0].push_back(i);
  const auto options = [how](X x) {
    AttentionOptions o;
    if (x.size() > 3) o.mask = x[3];
    o.causal = how.causal;
    if (how.scale != 0) o.scale = how.scale;
    return o;
  };
  const auto bad = [](const Shape& q, const Shape& k, const Shape& v, AttentionOptions o) {
    return [=] { scaled_dot_product_attention(empty(q), empty(k), empty(v), o); };
  };
  OpCase row{.op = "scaled_dot_product_attention",
             .variant = how.name,
             .samples = samples,
             .run = [options](X x) { return scaled_dot_product_attention(x[0], x[1], x[2], options(x)); },
             .reference = [how](A x) { return attention_of(x, how).first; },
             .terms = 32};
  OpCase weights = row;
  weights.op = "attention_with_weights";
  weights.run = [options](X x) {
    const AttentionResult r = attention_with_weights(x[0], x[1], x[2], options(x));
    return cat({r.output, r.weights}, -1);
  };
  weights.reference = [how](A x) {
    const auto [y, w] = attention_of(x, how);
    Array both(Shape{y.size(0), y.size(1), y.size(2) + w.size(2)});
    for (int64_t b = 0; b < y.size(0); ++b) {
      for (int64_t l = 0; l < y.size(1); ++l) {
        for (int64_t c = 0; c < both.size(2); ++c)
          both.at({b, l, c}) = c < y.size(2) ? y.at({b, l, c}) : w.at({b, l, c - y.size(2)});
      }
    }
    return both;
  };
  if (std::string(how.name).empty()) {
    row.errors = {
        {"features", bad({2, 3, 4}, {2, 5, 3}, {2, 5, 3}, {}), {"[2,3,4]", "[2,5,3]"}},
        {"keys and values", bad({2, 3, 4}, {2, 5, 4}, {2, 6, 3}, {}), {"[2,5,4]", "[2,6,3]"}},
        {"vector", bad({4}, {5, 4}, {5, 3}, {}), {"[4]"}},
        {"batches", bad({2, 3, 4}, {3, 5, 4}, {3, 5, 3}, {}), {"[2]", "[3]"}},
        {"dropout", bad({3, 4}, {5, 4}, {5, 3}, {.dropout = 1.5}), {"1.5"}},
        {"mask's shape", bad({3, 4}, {5, 4}, {5, 3}, {.mask = empty({3, 4})}), {"[3,5]", "[3,4]"}},
        {"mask's dims", bad({3, 4}, {5, 4}, {5, 3}, {.mask = empty({2, 3, 5})}), {"[3,5]", "[2,3,5]"}},
        {"mask's dtype",
         bad({3, 4}, {5, 4}, {5, 3}, {.mask = empty({3, 5}, {.dtype = DType::kI64})}),
         {"i64", "f32"}},
        ERROR_CASE(
            scaled_dot_product_attention(empty({3, 4}), empty({5, 4}, {.dtype = DType::kF64}), empty({5, 3})),
            "f32", "f64")};
    weights.errors = {
        ERROR_CASE(attention_with_weights(empty({3, 4}), empty({5, 3}), empty({5, 3})), "[3,4]", "[5,3]")};
  }
  add_row(row);
  add_row(weights);
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

void add_recurrent() {
  add_row(
      {.op = "lstm_cell",
       .samples = {{in({3, 20}), in({3, 5})}, {in({1, 4}), in({1, 1})}, {in({0, 8}), in({0, 2})}},
       .run =
           [](X x) {
             const LSTMState s = lstm_cell(x[0], x[1]);
             return cat({s.h, s.c}, 1);
           },
       .reference =
           [](A x) {
             const int64_t H = x[1].size(1);
             Array y(Shape{x[1].size(0), 2 * H});
             for (int64_t n = 0; n < x[1].size(0); ++n) {
               for (int64_t j = 0; j < H; ++j) {
                 const auto gate = [&](int64_t k) { return x[0].at({n, k * H + j}); };
                 const double c =
                     logistic(gate(1)) * x[1].at({n, j}) + logistic(gate(0)) * std::tanh(gate(2));
                 y.at({n, j}) = logistic(gate(3)) * std::tanh(c);
                 y.at({n, H + j}) = c;
               }
             }
             return y;
           },
       .terms = 16,
       .errors = {ERROR_CASE(lstm_cell(empty({3, 15}), empty({3, 5})), "[3,20]", "[3,15]"),
                  ERROR_CASE(lstm_cell(empty({3, 20}), empty({5})), "[N,H]", "[5]"),
                  ERROR_CASE(lstm_cell(empty({3, 20}), empty({3, 5}, {.dtype = DType::kF64})), "f32", "f64"),
                  ERROR_CASE(
                      lstm_cell(empty({1, 4}, {.dtype = DType::kI64}), empty({1, 1}, {.dtype = DType::kI64})),
                      "i64")}});
  add_row(
      {.op = "gru_cell",
       .samples = {{in({3, 15}), in({3, 15}), in({3, 5})},
                   {in({1, 3}), in({1, 3}), in({1, 1})},
                   {in({0, 6}), in({0, 6}), in({0, 2})}},
       .run = RUN(gru_cell(x[0], x[1], x[2])),
       .reference =
           [](A x) {
             const int64_t H = x[2].size(1);
             Array y(x[2].shape);
             for (int64_t n = 0; n < x[2].size(0); ++n) {
               for (int64_t j = 0; j < H; ++j) {
                 const auto at = [&](int i, int64_t k) { return x[size_t(i)].at({n, k * H + j}); };
                 const double r = logistic(at(0, 0) + at(1, 0)), z = logistic(at(0, 1) + at(1, 1)),
                              c = std::tanh(at(0, 2) + r * at(1, 2));
                 y.at({n, j}) = (1 - z) * c + z * x[2].at({n, j});
               }
             }
             return y;
           },
       .terms = 16,
       .errors = {
           ERROR_CASE(gru_cell(empty({3, 10}), empty({3, 15}), empty({3, 5})), "x_gates", "[3,15]", "[3,10]"),
           ERROR_CASE(gru_cell(empty({3, 15}), empty({2, 15}), empty({3, 5})), "h_gates", "[3,15]", "[2,15]"),
           ERROR_CASE(gru_cell(empty({3, 15}), empty({3, 15}), empty({5})), "[N,H]", "[5]"),
           ERROR_CASE(gru_cell(empty({3, 15}), empty({3, 15}, {.dtype = DType::kF64}), empty({3, 5})), "f32",
                      "f64")}});
}

}  // namespace

static const bool added = [] {
  add_attention({.name = ""});
  add_attention({.name = "scale", .scale = 0.3});
  add_attention({.name = "causal", .causal = true});
  add_attention({.name = "mask", .mask = true},
                {Input{.shape = {3, 5},
                       .fixed = true,
                       .dtype = DType::kBool,
                       .values = {1, 0, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1}}});
  add_attention({.name = "added mask", .additive = true}, {in({3, 5})});
  add_recurrent();
  return true;
}();

}  // namespace gradus::optest
