// Rows of matrix products.
#include <algorithm>
#include <cmath>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/op_table.h"

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
             .run = [](X x) { return matmul(x[0], x[1]); },
             .reference = [](A x) { return matmul_of(x[0], x[1]); },
             .terms = double(a.back()),
             .errors = {{"inner sizes",
                         [] {
                           matmul(empty({2, 3}), empty({4, 5}));
                         },
                         {"[2,3]", "[4,5]"}},
                        {"batch sizes",
                         [] {
                           matmul(empty({2, 3, 4}), empty({3, 4, 5}));
                         },
                         {"[2,3,4]", "[3,4,5]"}},
                        {"a scalar",
                         [] {
                           matmul(empty({}), empty({4, 5}));
                         },
                         {"[4,5]"}}}});
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
           .run = [](X x) { return linear(x[0], x[1], x[2]); },
           .reference = linear_of,
           .terms = 7,
           .errors = {{"features",
                       [] {
                         linear(empty({2, 3}), empty({4, 5}), empty({4}));
                       },
                       {"[2,3]", "[4,5]"}},
                      {"bias",
                       [] {
                         linear(empty({2, 3}), empty({4, 3}), empty({5}));
                       },
                       {"[5]"}}}});
  add_row({.op = "linear",
           .variant = "without bias",
           .samples = {{in({4, 6}), in({3, 6})}},
           .run = [](X x) { return linear(x[0], x[1]); },
           .reference = linear_of,
           .terms = 6});
}

}  // namespace

static const bool added = [] {
  add_matmul();
  return true;
}();

}  // namespace gradus::optest
