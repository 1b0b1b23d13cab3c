// Rows of the op test table for matrix products (matmul, linear, einsum, mm, addmm, ...), matrix_power and
// cross. Most references evaluate an einsum equation term by term in f64. Each row is tested against its f64
// reference, its gradients against difference quotients; op_table.h explains the fields.
#include <algorithm>
#include <map>
#include <stdexcept>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

// a[...,M,K] b[...,K,N], batch dims broadcast; vectors as in NumPy.
Array matmul_of(Array a, Array b) {
  const bool vector_a = a.dim() == 1, vector_b = b.dim() == 1;
  if (vector_a) a.shape.insert(0, 1);
  if (vector_b) b.shape.push_back(1);
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  Shape batch_a = a.shape, batch_b = b.shape;
  for (Shape* s : {&batch_a, &batch_b}) s->erase(s->size() - 1), s->erase(s->size() - 1);
  const Shape batch = broadcast_shapes(batch_a, batch_b, "reference");
  Array index_a(batch_a), index_b(batch_b);
  for (size_t i = 0; i < index_a.v.size(); ++i) index_a.v[i] = double(i);
  for (size_t i = 0; i < index_b.v.size(); ++i) index_b.v[i] = double(i);
  Array y;
  y.shape = batch;
  if (!vector_a) y.shape.push_back(m);
  if (!vector_b) y.shape.push_back(n);
  for (int64_t g = 0; g < batch.product(); ++g) {
    const double* pa = a.v.data() + int64_t(broadcast_at(index_a, batch, g)) * m * k;
    const double* pb = b.v.data() + int64_t(broadcast_at(index_b, batch, g)) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double s = 0;
        for (int64_t l = 0; l < k; ++l) s += pa[i * k + l] * pb[l * n + j];
        y.v.push_back(s);
      }
    }
  }
  return y;
}

void add_matmul() {
  const auto product = [](const char* variant, const Shape& a, const Shape& b) {
    add_row({.op = "matmul",
             .variant = variant,
             .samples = {{in(a), in(b)}},
             .run = RUN(matmul(x[0], x[1])),
             .reference = [](A x) { return matmul_of(x[0], x[1]); },
             .terms = double(a.back()),
             .errors = {ERROR_CASE(matmul(empty({2, 3}), empty({4, 5})), "[2,3]", "[4,5]"),
                        ERROR_CASE(matmul(empty({2, 3, 4}), empty({3, 4, 5})), "[2,3,4]", "[3,4,5]"),
                        ERROR_CASE(matmul(empty({}), empty({4, 5})), "[4,5]")}});
  };
  product("", {3, 5}, {5, 4});
  product("one row", {1, 5}, {5, 1});
  product("dot", {6}, {6});
  product("matrix by vector", {3, 6}, {6});
  product("vector by matrix", {6}, {6, 3});
  product("batched", {2, 3, 4}, {2, 4, 5});
  product("batch broadcasts", {2, 1, 3, 4}, {5, 4, 2});
  product("matrix by batch", {3, 4}, {2, 4, 2});
  product("batch by matrix", {2, 3, 4}, {4, 2});
  product("batch by vector", {2, 3, 4}, {4});
  // Past the sizes of blocks and vector registers.
  product("large", {67, 130}, {130, 65});
  product("large batch", {3, 33, 40}, {3, 40, 35});
  product("large matrix by vector", {150, 200}, {200});

  const auto linear_of = [](A x) {
    Array y = matmul_of(x[0], transpose_to(x[1], {1, 0}));
    if (x.size() > 2) {
      for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += x[2].v[i % x[2].v.size()];
    }
    return y;
  };
  add_row({.op = "linear",
           .samples = {{in({4, 6}), in({3, 6}), in({3})},
                       {in({2, 2, 6}), in({3, 6}), in({3})},
                       {in({6}), in({3, 6}), in({3})}},
           .run = RUN(linear(x[0], x[1], x[2])),
           .reference = linear_of,
           .terms = 7,
           .errors = {ERROR_CASE(linear(empty({2, 3}), empty({4, 5}), empty({4})), "[2,3]", "[4,5]"),
                      ERROR_CASE(linear(empty({2, 3}), empty({4, 3}), empty({5})), "[5]")}});
  add_row({.op = "linear",
           .variant = "without bias",
           .samples = {{in({4, 6}), in({3, 6})}},
           .run = RUN(linear(x[0], x[1])),
           .reference = linear_of,
           .terms = 6});
  const auto rectified = [=](A x) {
    Array y = linear_of(x);
    for (auto& v : y.v) v = v > 0 ? v : 0;
    return y;
  };
  add_row({.op = "linear_relu",
           .samples = {{in({4, 6}), in({3, 6}), in({3})},
                       {in({2, 2, 6}), in({3, 6}), in({3})},
                       {in({6}), in({3, 6}), in({3})}},
           .run = RUN(linear_relu(x[0], x[1], x[2])),
           .reference = rectified,
           .terms = 7,
           .errors = {ERROR_CASE(linear_relu(empty({2, 3}), empty({4, 5}), empty({4})), "[linear_relu]",
                                 "[2,3]", "[4,5]")}});
  add_row({.op = "linear_relu",
           .variant = "without bias",
           .samples = {{in({4, 6}), in({3, 6})}},
           .run = RUN(linear_relu(x[0], x[1])),
           .reference = rectified,
           .terms = 6});
}

// --- einsum ---

// einsum by its definition: a sum over all index values, in which dims of size 1 broadcast. `equation` has no
// "..." and names its result.
Reference sum_of_products(const std::string& equation) {
  return [=](A x) {
    std::vector<std::string> terms(1);
    const size_t arrow = equation.find("->");
    for (char c : equation.substr(0, arrow))
      if (c == ',')
        terms.emplace_back();
      else
        terms.back() += c;
    const std::string result = equation.substr(arrow + 2);
    std::map<char, int64_t> sizes;
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t d = 0; d < terms[i].size(); ++d) {
        int64_t& n = sizes.try_emplace(terms[i][d], 1).first->second;
        if (x[i].shape[int(d)] != 1) n = x[i].shape[int(d)];
      }
    Array y;
    std::map<char, int64_t> at;
    int64_t total = 1;
    for (const auto& [label, n] : sizes) at[label] = 0, total *= n;
    if (total > int64_t(1) << 22) throw std::length_error("sum_of_products: too many products to wait for");
    for (char label : result) y.shape.push_back(sizes[label]);
    y = Array(y.shape);
    const auto place = [&](const std::string& term, const Shape& shape) {
      int64_t o = 0;
      for (size_t d = 0; d < term.size(); ++d) {
        const int64_t n = shape[int(d)];
        o = o * n + at[term[d]] % n;
      }
      return size_t(o);
    };
    for (int64_t i = 0; i < total; ++i) {
      double product = 1;
      for (size_t k = 0; k < x.size(); ++k) product *= x[k].v[place(terms[k], x[k].shape)];
      y.v[place(result, y.shape)] += product;
      for (auto& [label, index] : at) {
        if (++index < sizes[label]) break;
        index = 0;
      }
    }
    return y;
  };
}

const TensorOptions kDouble{DType::kF64, kCPU}, kWhole{DType::kI64, kCPU};
const TensorOptions kOther{DType::kF32, Device{DeviceType::kCPU, 1}};

// `more` and the errors that products of two operands share: two dtypes, two devices; if `floating`,
// integers.
std::vector<ErrorCase> pair_errors(const std::function<Tensor(const Tensor&, const Tensor&)>& f,
                                   const Shape& a, const Shape& b, std::vector<ErrorCase> more,
                                   bool floating = true) {
  more.push_back(ERROR_CASE(f(empty(a), empty(b, kDouble)), "f32", "f64"));
  more.push_back(ERROR_CASE(f(empty(a), empty(b, kOther)), "cpu:1"));
  if (floating) more.push_back(ERROR_CASE(f(empty(a, kWhole), empty(b, kWhole)), "i64"));
  return more;
}

std::vector<ErrorCase> einsum_errors() {
  const auto call = [](const char* equation, std::vector<Shape> shapes) {
    return [=] {
      std::vector<Tensor> x;
      for (const Shape& s : shapes) x.push_back(empty(s));
      einsum(equation, x);
    };
  };
  return pair_errors(
      [](const Tensor& a, const Tensor& b) {
        return einsum("ij,jk", {a, b});
      },
      {2, 3}, {3, 2},
      {{"operands", call("ij,jk->ik", {{2, 3}}), {"1 operands for 2 terms", "\"ij,jk->ik\""}},
       {"no operands", call("ij", {}), {"0 operands", "\"ij\""}},
       {"sizes", call("ij,jk->ik", {{2, 3}, {4, 2}}), {"sizes 3 and 4 of 'j'", "[4,2]", "\"ij,jk->ik\""}},
       {"sizes of ...", call("...i,...i", {{2, 3}, {4, 3}}), {"sizes 2 and 4 of \"...\"", "[4,3]"}},
       {"a diagonal of no square", call("ii", {{2, 3}}), {"sizes 2 and 3", "[2,3]", "\"ii\""}},
       {"dims", call("ijk->k", {{2, 3}}), {"2 dimensions for 3 letters", "[2,3]"}},
       {"dims beside ...", call("...ijk->k", {{2, 3}}), {"2 dimensions for 3 letters", "[2,3]"}},
       {"a letter", call("i1->i", {{2, 3}}), {"'1'", "\"i1->i\""}},
       {"dots", call("..i->i", {{2, 3}}), {"dots", "\"..i->i\""}},
       {"dots twice", call("...i...->i", {{2, 3}}), {"dots"}},
       {"unknown in the result", call("ij->ik", {{2, 3}}), {"'k'", "no operand"}},
       {"twice in the result", call("ij->ii", {{2, 3}}), {"'i'", "twice"}},
       {"too many dims",
        call("abcde,fghij->abcdefghij", {{1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}),
        {"10 dimensions"}}});
}

void add_einsum() {
  struct Case {
    const char *equation, *plain;  // plain: for sum_of_products; "": equation
    std::vector<Shape> shapes;
  };
  const Case cases[] = {
      {"ij,jk->ik", "", {{3, 4}, {4, 2}}},
      {"ij,jk", "ij,jk->ik", {{3, 4}, {4, 2}}},
      {"ij,kj->ki", "", {{3, 4}, {2, 4}}},
      {"ba", "ba->ab", {{3, 4}}},
      {"ij->", "", {{3, 4}}},
      {"ij->j", "", {{3, 4}}},
      {"ii", "ii->", {{3, 3}}},
      {"ii->i", "", {{3, 3}}},
      {"ijij->ji", "", {{2, 3, 2, 3}}},
      {"aiia->a", "", {{3, 2, 2, 3}}},
      {"iji,j->i", "", {{2, 3, 2}, {3}}},
      {"iii->i", "", {{3, 3, 3}}},
      {"i,i->", "", {{5}, {5}}},
      {"i,j->ij", "", {{3}, {4}}},
      {"ij,ij->ij", "", {{3, 4}, {3, 4}}},
      {"bij,bjk->bik", "", {{2, 3, 4}, {2, 4, 2}}},
      {"bthd,bshd->bhts", "", {{2, 3, 2, 4}, {2, 5, 2, 4}}},
      {"bhts,bshd->bthd", "", {{2, 2, 3, 5}, {2, 5, 2, 4}}},
      {"ijk,jil->kl", "", {{2, 3, 4}, {3, 2, 5}}},
      {"bi,oij,bj->bo", "", {{2, 3}, {4, 3, 2}, {2, 2}}},
      {"ab,bc,cd,de->ae", "", {{2, 3}, {3, 2}, {2, 4}, {4, 3}}},
      {"...ij,...jk->...ik", "abij,bjk->abik", {{2, 3, 2, 4}, {3, 4, 2}}},
      {"i...j->...", "iabj->ab", {{2, 3, 2, 4}}},
      {"...,...", "ab,b->ab", {{2, 3}, {3}}},
      {"b...,b...->b", "bij,bij->b", {{2, 3, 2}, {2, 3, 2}}},
      {"B...a, A...a", "Bia,Aia->iAB", {{2, 3, 2}, {4, 3, 2}}},
      {"ij,jk->ik", "", {{3, 1}, {4, 2}}},
      {"ij,ij->i", "", {{1, 4}, {3, 4}}},
      {"a,b,c->cba", "", {{2}, {1}, {3}}},
      {",ij->ij", "", {{}, {2, 3}}},
      {",", ",->", {{}, {}}},
      {"ij,jk->ik", "", {{1, 1}, {1, 1}}},
      {"ij,jk->ik", "", {{0, 4}, {4, 2}}},
      {"ij,jk->ik", "", {{3, 0}, {0, 2}}},
      {"ij,kl->ijkl", "", {{2, 3}, {2, 2}}},
      {"ij,jk->ik", "", {{33, 70}, {70, 35}}},
  };
  bool first = true;
  for (const Case& c : cases) {
    Sample sample;
    std::string variant = c.equation;
    double terms = 4;
    for (const Shape& s : c.shapes)
      sample.push_back(in(s)), variant += " " + to_string(s), terms += double(s.product());
    add_row({.op = "einsum",
             .variant = variant,
             .samples = {sample},
             .run = [e = std::string(c.equation)](X x) { return einsum(e, x); },
             .reference = sum_of_products(*c.plain ? c.plain : c.equation),
             .terms = terms,
             .errors = first ? einsum_errors() : std::vector<ErrorCase>()});
    first = false;
  }
}

// --- products by name ---

using Pair = std::function<Tensor(const Tensor&, const Tensor&)>;

// A row of samples of these shapes; `equation` is the reference.
void add_pair(const char* op, const Pair& f, const char* equation,
              const std::vector<std::pair<Shape, Shape>>& shapes, std::vector<ErrorCase> errors,
              bool floating = true) {
  std::vector<Sample> samples;
  double terms = 1;
  for (const auto& [a, b] : shapes)
    samples.push_back({in(a), in(b)}), terms = std::max(terms, double(a.product()));
  add_row({.op = op,
           .samples = samples,
           .run = RUN(f(x[0], x[1])),
           .reference = sum_of_products(equation),
           .terms = terms,
           .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
           .errors = pair_errors(f, shapes[0].first, shapes[0].second, std::move(errors), floating)});
}

void add_pairs() {
  const auto given = [](Pair f, Shape a, Shape b) { return [=] { f(empty(a), empty(b)); }; };
  add_pair("mm", mm, "ij,jk->ik", {{{3, 4}, {4, 2}}, {{1, 1}, {1, 1}}, {{0, 2}, {2, 3}}, {{2, 0}, {0, 3}}},
           {{"sizes", given(mm, {2, 3}, {4, 5}), {"[mm]", "3 and 4", "[2,3]", "[4,5]"}},
            {"dims", given(mm, {2, 3}, {3}), {"[mm]", "2 and 2 dimensions", "[3]"}}});
  add_pair("bmm", bmm, "bij,bjk->bik",
           {{{2, 3, 4}, {2, 4, 2}}, {{1, 1, 1}, {1, 1, 1}}, {{0, 2, 2}, {0, 2, 3}}},
           {{"sizes", given(bmm, {2, 2, 3}, {2, 4, 5}), {"[bmm]", "3 and 4"}},
            {"batches", given(bmm, {1, 2, 3}, {2, 3, 5}), {"[bmm]", "batches of 1 and 2"}},
            {"dims", given(bmm, {2, 3}, {3, 2}), {"[bmm]", "3 and 3 dimensions", "[2,3]"}}});
  add_pair("mv", mv, "ij,j->i", {{{3, 4}, {4}}, {{1, 1}, {1}}, {{0, 2}, {2}}},
           {{"sizes", given(mv, {2, 3}, {4}), {"[mv]", "3 and 4"}},
            {"dims", given(mv, {2, 3}, {3, 1}), {"[mv]", "2 and 1 dimensions"}}});
  add_pair("dot", dot, "i,i->", {{{6}, {6}}, {{1}, {1}}, {{0}, {0}}, {{1000}, {1000}}},
           {{"sizes", given(dot, {3}, {4}), {"[dot]", "3 and 4"}},
            {"dims", given(dot, {2, 3}, {3}), {"[dot]", "1 and 1 dimensions"}}});
  add_pair("outer", outer, "i,j->ij", {{{3}, {4}}, {{1}, {1}}, {{0}, {2}}},
           {{"dims", given(outer, {2, 3}, {3}), {"[outer]", "vectors", "[2,3]"}}}, false);
  const Pair inner_pair = [](const Tensor& a, const Tensor& b) { return inner(a, b); };
  add_pair("inner", inner_pair, "ijk,lk->ijl", {{{2, 3, 4}, {5, 4}}, {{1, 1, 1}, {1, 1}}},
           {{"sizes", given(inner_pair, {2, 3}, {2}), {"[inner]", "3 and 2"}}});
  add_row({.op = "inner",
           .variant = "by a scalar",
           .samples = {{in({}), in({2, 3})}},
           .run = RUN(inner(x[0], x[1])),
           .reference = sum_of_products(",ij->ij")});
  // The reference `f` with dims joined, as kron joins them.
  const auto joined = [](Reference f, Shape shape) {
    return [=](A x) {
      Array y = f(x);
      y.shape = shape;
      return y;
    };
  };
  add_row(
      {.op = "kron",
       .variant = "matrices",
       .samples = {{in({2, 3}), in({4, 2})}},
       .run = RUN(kron(x[0], x[1])),
       .reference = joined(sum_of_products("ik,jl->ijkl"), {8, 6}),
       .errors = pair_errors(
           kron, {2, 3}, {4, 2},
           {{"dims", given(kron, {1, 1, 1, 1, 1}, {1}), {"[kron]", "at most 4", "[1,1,1,1,1]"}}}, false)});
  add_row({.op = "kron",
           .variant = "one of all",
           .samples = {{in({1, 1}), in({1, 1})}},
           .run = RUN(kron(x[0], x[1])),
           .reference = joined(sum_of_products("ik,jl->ijkl"), {1, 1})});
  add_row({.op = "kron",
           .variant = "of fewer dims",
           .samples = {{in({3}), in({4, 2})}},
           .run = RUN(kron(x[0], x[1])),
           .reference = joined(sum_of_products("k,jl->jkl"), {4, 6})});
}

void add_tensordot() {
  const auto f = [](const Tensor& a, const Tensor& b) { return tensordot(a, b, 1); };
  add_row({.op = "tensordot",
           .samples = {{in({2, 3, 4}), in({3, 4, 2})}, {in({1, 1}), in({1, 1})}},
           .run = RUN(tensordot(x[0], x[1])),
           .reference = [](A x) { return sum_of_products(x[0].dim() == 3 ? "ijk,jkl->il" : "ij,ij->")(x); },
           .terms = 12,
           .errors = pair_errors(
               f, {2, 3}, {3, 2},
               {ERROR_CASE(f(empty({2, 3}), empty({4, 2})), "[tensordot]", "[2,3]", "[4,2]"),
                ERROR_CASE(tensordot(empty({2}), empty({2, 3})), "2 dims", "[2,3]"),
                ERROR_CASE(tensordot(empty({2}), empty({2, 3}), -1), "-1 dims"),
                ERROR_CASE(tensordot(empty({2}), empty({2, 3}), {0}, {0, 1}), "[0]", "[0,1]"),
                ERROR_CASE(tensordot(empty({2, 2}), empty({2, 2}), {0, 0}, {0, 1}), "twice", "[0,0]"),
                ERROR_CASE(tensordot(empty({2}), empty({2}), {1}, {0}), "[tensordot]", "1")})});
  add_row({.op = "tensordot",
           .variant = "listed dims",
           .samples = {{in({2, 3, 4}), in({5, 4, 2})}},
           .run = RUN(tensordot(x[0], x[1], {0, -1}, {2, 1})),
           .reference = sum_of_products("ijk,lki->jl"),
           .terms = 8});
  add_row({.op = "tensordot",
           .variant = "no dims",
           .samples = {{in({2, 3}), in({2})}},
           .run = RUN(tensordot(x[0], x[1], 0)),
           .reference = sum_of_products("ij,k->ijk")});
}

// beta c + alpha (the product by `equation`)
Reference weighted(const char* equation, const AddmmOptions& o) {
  return [=](A x) {
    Array y = sum_of_products(equation)({x[1], x[2]});
    for (size_t i = 0; i < y.v.size(); ++i)
      y.v[i] = y.v[i] * o.alpha + (o.beta == 0 ? 0 : o.beta * broadcast_at(x[0], y.shape, int64_t(i)));
    return y;
  };
}

using Add = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AddmmOptions&);

// cs: shapes of c that broadcast to the product; misfit: one that does not.
void add_weighted(const char* op, Add f, const char* equation, const Shape& a, const Shape& b,
                  const std::vector<Shape>& cs, const Shape& misfit) {
  bool first = true;
  for (const AddmmOptions& o : {AddmmOptions{}, AddmmOptions{.beta = 0.5, .alpha = -2},
                                AddmmOptions{.beta = 0}, AddmmOptions{.beta = 2}}) {
    std::vector<Sample> samples;
    for (const Shape& c : cs) samples.push_back({in(c), in(a), in(b)});
    const auto given = [=](Shape c, Shape x, Shape y) {
      return [=] { f(empty(c), empty(x), empty(y), {}); };
    };
    Shape other = b, longer = a;
    ++other[std::max(0, b.size() - 2)];
    longer.push_back(2);
    std::vector<ErrorCase> errors =
        pair_errors([=](const Tensor& x, const Tensor& y) { return f(empty(cs[0]), x, y, {}); }, a, b,
                    {{"c", given(misfit, a, b), {"c does not broadcast", to_string(misfit)}},
                     ERROR_CASE(f(empty(cs[0], kDouble), empty(a), empty(b), {}), "f64"),
                     {"sizes", given(cs[0], a, other), {"do not fit", to_string(other)}},
                     {"dims", given(cs[0], longer, b), {"dimensions", to_string(longer)}}});
    if (a.size() == 3) errors.push_back({"batches", given(cs[0], {a[0] + 1, a[1], a[2]}, b), {"batches of"}});
    add_row({.op = op,
             .variant = concat("beta ", o.beta, " alpha ", o.alpha),
             .samples = samples,
             .run = RUN(f(x[0], x[1], x[2], o)),
             .reference = weighted(equation, o),
             .terms = 2 * double(a.back()) + 2,
             .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
             .errors = first ? errors : std::vector<ErrorCase>()});
    first = false;
  }
}

void add_bilinear() {
  const auto reference = [](A x) {
    const bool rows = x[0].dim() == 3;
    Array y = sum_of_products(rows ? "nmi,nmj,oij->nmo" : "ni,nj,oij->no")({x[0], x[1], x[2]});
    if (x.size() > 3)
      for (size_t i = 0; i < y.v.size(); ++i) y.v[i] += x[3].v[i % x[3].v.size()];
    return y;
  };
  const auto given = [](Shape a, Shape b, Shape w, Shape bias) {
    return [=] { bilinear(empty(a), empty(b), empty(w), empty(bias)); };
  };
  add_row({.op = "bilinear",
           .samples = {{in({2, 3}), in({2, 4}), in({5, 3, 4}), in({5})},
                       {in({2, 2, 3}), in({2, 2, 2}), in({2, 3, 2}), in({2})},
                       {in({1, 1}), in({1, 1}), in({1, 1, 1}), in({1})},
                       {in({0, 3}), in({0, 4}), in({5, 3, 4}), in({5})}},
           .run = RUN(bilinear(x[0], x[1], x[2], x[3])),
           .reference = reference,
           .terms = 16,
           .errors = pair_errors(
               [](const Tensor& a, const Tensor& b) {
                 return bilinear(a, b, empty({2, 3, 4}));
               },
               {2, 3}, {2, 4},
               {{"features", given({2, 4}, {2, 4}, {5, 3, 4}, {5}), {"takes 3 and 4", "[2,4]"}},
                {"leading sizes", given({3, 3}, {2, 4}, {5, 3, 4}, {5}), {"leading", "[3,3]", "[2,4]"}},
                {"weight", given({2, 3}, {2, 4}, {5, 3}, {5}), {"weight must be", "[5,3]"}},
                {"bias", given({2, 3}, {2, 4}, {5, 3, 4}, {4}), {"bias must have 5", "[4]"}}})});
  add_row({.op = "bilinear",
           .variant = "without bias",
           .samples = {{in({2, 3}), in({2, 4}), in({5, 3, 4})}},
           .run = RUN(bilinear(x[0], x[1], x[2])),
           .reference = reference,
           .terms = 16});
}

void add_others() {
  add_row({.op = "chain_matmul",
           .samples = {{in({2, 5}), in({5, 3}), in({3, 4}), in({4, 1})},
                       {in({3, 2}), in({2, 4}), in({4, 4}), in({4, 0})}},
           .run = RUN(chain_matmul(x)),
           .reference = sum_of_products("ab,bc,cd,de->ae"),
           .terms = 40,
           .errors = pair_errors(
               [](const Tensor& a, const Tensor& b) {
                 return chain_matmul({a, b});
               },
               {2, 3}, {3, 2},
               {ERROR_CASE(chain_matmul({}), "at least one"), ERROR_CASE(chain_matmul({empty({3})}), "[3]"),
                ERROR_CASE(chain_matmul({empty({2, 3}), empty({1, 3, 2})}), "[1,3,2]"),
                ERROR_CASE(chain_matmul({empty({2, 3}), empty({4, 2})}), "3 and 4")})});
  const std::pair<int64_t, const char*> powers[] = {
      {1, "ij->ij"}, {2, "ij,jk->ik"}, {3, "ij,jk,kl->il"}, {5, "ij,jk,kl,lm,mn->in"}};
  for (const auto& [n, equation] : powers) {
    add_row({.op = "matrix_power",
             .variant = std::to_string(n),
             .samples = {{in({3, 3})}, {in({1, 1})}},
             .run = [n = n](X x) { return matrix_power(x[0], n); },
             .reference = [n = n, equation = equation](
                              A x) { return sum_of_products(equation)(std::vector<Array>(size_t(n), x[0])); },
             .terms = 40,
             .errors = {ERROR_CASE(matrix_power(empty({2, 3}), 2), "square", "[2,3]"),
                        ERROR_CASE(matrix_power(empty({3}), 2), "square", "[3]"),
                        ERROR_CASE(matrix_power(empty({3, 3}), -1), "-1"),
                        ERROR_CASE(matrix_power(empty({3, 3}, kWhole), 2), "i64")}});
  }
  add_row({.op = "matrix_power",
           .variant = "of a batch",
           .samples = {{in({2, 3, 3})}},
           .run = RUN(matrix_power(x[0], 3)),
           .reference =
               [](A x) {
                 return sum_of_products("bij,bjk,bkl->bil")({x[0], x[0], x[0]});
               },
           .terms = 20});
  add_row({.op = "matrix_power",
           .variant = "0",
           .samples = {{in({2, 2, 2})}},
           .run = RUN(matrix_power(x[0], 0)),
           .reference = [](A x) {
             Array y(x[0].shape);
             for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = i % 4 == 0 || i % 4 == 3;
             return y;
           }});
  const auto cross_of = [](A x) {
    Shape shape = broadcast_shapes(x[0].shape, x[1].shape, "reference");
    Array y(shape);
    const auto at = [&](const Array& v, size_t i, size_t axis) {
      return broadcast_at(v, shape, int64_t(i / 3 * 3 + axis % 3));
    };
    for (size_t i = 0; i < y.v.size(); ++i)
      y.v[i] =
          at(x[0], i, i % 3 + 1) * at(x[1], i, i % 3 + 2) - at(x[0], i, i % 3 + 2) * at(x[1], i, i % 3 + 1);
    return y;
  };
  add_row(
      {.op = "cross",
       .samples = {{in({2, 3}), in({2, 3})},
                   {in({3}), in({3})},
                   {in({2, 1, 3}), in({1, 4, 3})},
                   {in({0, 3}), in({0, 3})}},
       .run = RUN(cross(x[0], x[1])),
       .reference = cross_of,
       .terms = 8,
       .errors = pair_errors([](const Tensor& a, const Tensor& b) { return cross(a, b); }, {2, 3}, {2, 3},
                             {ERROR_CASE(cross(empty({2, 4}), empty({2, 4})), "vectors of 3", "[2,4]"),
                              ERROR_CASE(cross(empty({3}), empty({2, 3})), "[3]", "[2,3]"),
                              ERROR_CASE(cross(empty({4, 3}), empty({2, 3})), "[cross]", "[4,3]", "[2,3]"),
                              ERROR_CASE(cross(empty({3}), empty({3}), 1), "[cross]", "1")},
                             false)});
  add_row(
      {.op = "cross",
       .variant = "dim 0",
       .samples = {{in({3, 2}), in({3, 2})}},
       .run = RUN(cross(x[0], x[1], 0)),
       .reference =
           [=](A x) {
             return transpose_to(cross_of({transpose_to(x[0], {1, 0}), transpose_to(x[1], {1, 0})}), {1, 0});
           },
       .terms = 8});
}

}  // namespace

static const bool added = [] {
  add_matmul();
  add_einsum();
  add_pairs();
  add_tensordot();
  add_weighted("addmm", addmm, "ij,jk->ik", {3, 4}, {4, 2}, {{3, 2}, {2}, {3, 1}, {}}, {3, 3});
  add_weighted("addmv", addmv, "ij,j->i", {3, 4}, {4}, {{3}, {1}, {}}, {2});
  add_weighted("baddbmm", baddbmm, "bij,bjk->bik", {2, 3, 4}, {2, 4, 2}, {{2, 3, 2}, {3, 1}, {2}}, {3, 3, 2});
  add_bilinear();
  add_others();
  return true;
}();

}  // namespace gradus::optest
