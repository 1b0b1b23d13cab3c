// Rows of the op test table for views, indexing (also x[{...}]), masks, joining and splitting. References
// move elements of f64 arrays. Each row is tested against its f64 reference, its gradients against difference
// quotients; op_table.h explains the fields.
#include <algorithm>
#include <cmath>

#include "gradus/autograd/indexing.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

// x[0] with another shape.
Reference reshaped(const Shape& s) {
  return [s](A x) {
    Array y = x[0];
    y.shape = s;
    return y;
  };
}

// transpose_to: dim d of the result is dim order[d] of x.
Reference reordered(std::vector<int> order) {
  return [order](A x) { return transpose_to(x[0], order); };
}

// Picks entries of one dim: y[..., k, ...] = x[..., picks[k], ...]; drops the dim when `drop`.
Array pick(const Array& x, int dim, const std::vector<int64_t>& picks, bool drop = false) {
  Array y = along(x, dim, true, [&](std::vector<double> line) {
    std::vector<double> out;
    for (int64_t p : picks) out.push_back(line.at(size_t(p)));
    return out;
  });
  if (drop) y.shape.erase(dim);
  return y;
}

// A row of one sample.
void row(const char* op, const char* variant, std::vector<Input> inputs, std::function<Tensor(X)> run,
         Reference r, std::vector<ErrorCase> errors = {}) {
  add_row({.op = op,
           .variant = variant,
           .samples = {std::move(inputs)},
           .run = std::move(run),
           .reference = std::move(r),
           .terms = 8,
           .dtypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64},
           .errors = std::move(errors)});
}

void add_views() {
  row("view", "", {in({2, 6})}, RUN(view(contiguous(x[0]), {3, 4})), reshaped({3, 4}),
      {ERROR_CASE(view(empty({2, 3}), {4, 2}), "[2,3]", "[4,2]"),
       ERROR_CASE(view(transpose(empty({2, 3}), 0, 1), {6}), "[6]")});
  row("reshape", "", {in({2, 6})}, RUN(reshape(x[0], {3, -1})), reshaped({3, 4}),
      {ERROR_CASE(reshape(empty({2, 3}), {4, 2}), "[2,3]", "[4,2]"),
       ERROR_CASE(reshape(empty({2, 3}), {-1, 4}), "[2,3]")});
  row("reshape", "of an image", {in({2, 3, 2, 2})}, RUN(reshape(x[0], {2, 12})), reshaped({2, 12}));
  row("reshape", "to a scalar", {in({1, 1})}, RUN(reshape(x[0], {})), reshaped({}));
  row("flatten", "", {in({2, 3, 2, 2})}, RUN(flatten(x[0], 1)), reshaped({2, 12}),
      {ERROR_CASE(flatten(empty({2, 3}), 2), "2")});
  row("flatten", "all", {in({2, 3})}, RUN(flatten(x[0])), reshaped({6}));
  row("flatten", "scalar", {in({})}, RUN(flatten(x[0])), reshaped({1}));
  row("flatten", "middle", {in({2, 3, 2, 2})}, RUN(flatten(x[0], 1, 2)), reshaped({2, 6, 2}));
  row("permute", "", {in({2, 3, 4})}, RUN(permute(x[0], {2, 0, 1})), reordered({2, 0, 1}),
      {ERROR_CASE(permute(empty({2, 3}), {0}), "[2,3]"), ERROR_CASE(permute(empty({2, 3}), {0, 0}), "0")});
  row("permute", "image", {in({2, 3, 2, 2})}, RUN(permute(x[0], {0, 2, 3, 1})), reordered({0, 2, 3, 1}));
  row("transpose", "", {in({2, 3, 4})}, RUN(transpose(x[0], 0, -1)), reordered({2, 1, 0}),
      {ERROR_CASE(transpose(empty({2, 3}), 0, 3), "3")});
  row("expand", "", {in({3, 1})}, RUN(expand(x[0], {2, 3, 4})),
      [](A x) {
        Array y({2, 3, 4});
        for (int64_t i = 0; i < 24; ++i) y.v[size_t(i)] = broadcast_at(x[0], y.shape, i);
        return y;
      },
      {ERROR_CASE(expand(empty({2, 3}), {2, 4}), "[2,3]", "[2,4]")});
  row("squeeze", "", {in({1, 3, 1})}, RUN(squeeze(x[0])), reshaped({3}));
  row("squeeze", "dim", {in({1, 3, 1})}, RUN(squeeze(x[0], -1)), reshaped({1, 3}));
  row("squeeze", "other dim", {in({1, 3, 1})}, RUN(squeeze(x[0], 1)), reshaped({1, 3, 1}));
  row("unsqueeze", "", {in({2, 3})}, RUN(unsqueeze(x[0], 1)), reshaped({2, 1, 3}));
  row("unsqueeze", "back", {in({2, 3})}, RUN(unsqueeze(x[0], -1)), reshaped({2, 3, 1}));
  row("movedim", "", {in({2, 3, 4})}, RUN(movedim(x[0], 0, 2)), reordered({1, 2, 0}));
  row("movedim", "back", {in({2, 3, 4})}, RUN(movedim(x[0], 2, 0)), reordered({2, 0, 1}));
}

void add_more_views() {
  row("t", "", {in({2, 3})}, RUN(t(x[0])), reordered({1, 0}), {ERROR_CASE(t(empty({2, 3, 4})), "[2,3,4]")});
  row("t", "of a vector", {in({3})}, RUN(t(x[0])), reshaped({3}));
  const Reference repeated = [](A x) {
    Array y({2, 3, 4});
    for (int64_t i = 0; i < 24; ++i) y.v[size_t(i)] = broadcast_at(x[0], y.shape, i);
    return y;
  };
  row("broadcast_to", "", {in({3, 1})}, RUN(broadcast_to(x[0], {2, 3, 4})), repeated,
      {ERROR_CASE(broadcast_to(empty({2, 3}), {2, 4}), "[2,3]", "[2,4]")});
  row("expand", "keeping a size", {in({3, 1})}, RUN(expand(x[0], {2, -1, 4})), repeated);
  row("expand", "of a scalar", {in({})}, RUN(expand(x[0], {2, 2})), [](A x) {
    return Array({2, 2}, x[0].v[0]);
  });
  row("slice_backward", "", {in({2, 3})}, RUN(slice_backward(x[0], {2, 7}, 1, 1, 2)), [](A x) {
    Array y({2, 7});
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t j = 0; j < 3; ++j) y.at({i, 1 + 2 * j}) = x[0].at({i, j});
    return y;
  });
}

void add_indexing() {
  row("select", "", {in({3, 4})}, RUN(select(x[0], 0, -1)), [](A x) { return pick(x[0], 0, {2}, true); },
      {ERROR_CASE(select(empty({3, 4}), 0, 3), "3")});
  row("select", "image", {in({2, 3, 2, 2})}, RUN(select(x[0], 1, 1)),
      [](A x) { return pick(x[0], 1, {1}, true); });
  row("narrow", "", {in({2, 5})}, RUN(narrow(x[0], 1, 1, 3)),
      [](A x) {
        return pick(x[0], 1, {1, 2, 3});
      },
      {ERROR_CASE(narrow(empty({2, 5}), 1, 3, 4), "5")});
  row("slice", "", {in({5, 3})}, RUN(slice(x[0], 0, 1, 4)), [](A x) { return pick(x[0], 0, {1, 2, 3}); });
  row("slice", "step", {in({2, 7})}, RUN(slice(x[0], 1, 1, 7, 2)), [](A x) {
    return pick(x[0], 1, {1, 3, 5});
  });
  row("slice", "from the back", {in({2, 7})}, RUN(slice(x[0], 1, -3, 100)), [](A x) {
    return pick(x[0], 1, {4, 5, 6});
  });
  row("index_select", "", {in({4, 3}), indices({5}, {3, 0, 3, 1, 3})}, RUN(index_select(x[0], 0, x[1])),
      [](A x) {
        return pick(x[0], 0, {3, 0, 3, 1, 3});
      },
      {ERROR_CASE(index_select(empty({4, 3}), 0, tensor(std::vector<int64_t>{4}, {1})), "4")});
  row("index_select", "image", {in({2, 3, 2, 2}), indices({2}, {2, 0})}, RUN(index_select(x[0], 1, x[1])),
      [](A x) {
        return pick(x[0], 1, {2, 0});
      });
  const auto gathered = [](A x) {  // along dim 1
    Array y(x[1].shape);
    for (int64_t i = 0; i < y.size(0); ++i)
      for (int64_t j = 0; j < y.size(1); ++j) y.at({i, j}) = x[0].at({i, int64_t(x[1].at({i, j}))});
    return y;
  };
  row("gather", "", {in({3, 4}), indices({3, 5}, 4)}, RUN(gather(x[0], 1, x[1])), gathered,
      {ERROR_CASE(gather(empty({1, 3}), 1, tensor(std::vector<int64_t>{3}, {1, 1})), "3"),
       ERROR_CASE(gather(empty({2, 3}), 1, tensor(std::vector<int64_t>{0}, {1})), "[2,3]")});
  row("gather", "fewer rows", {in({3, 4}), indices({2, 2}, 4)}, RUN(gather(x[0], 1, x[1])), gathered);
  row("scatter_add", "", {in({3, 4}), indices({3, 5}, 4), in({3, 5})}, RUN(scatter_add(x[0], 1, x[1], x[2])),
      [](A x) {
        Array y = x[0];
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t j = 0; j < 5; ++j) y.at({i, int64_t(x[1].at({i, j}))}) += x[2].at({i, j});
        return y;
      });
}

void add_index_updates() {
  const auto updated = [](bool add) {
    return [add](A x) {  // rows of a 2-d x
      Array y = x[0];
      for (int64_t k = 0; k < x[1].size(0); ++k)
        for (int64_t j = 0; j < y.size(1); ++j) {
          double& at = y.at({int64_t(x[1].v[size_t(k)]), j});
          at = (add ? at : 0) + x[2].at({k, j});
        }
      return y;
    };
  };
  row("index_add", "", {in({4, 3}), indices({3}, {2, 0, 2}), in({3, 3})}, RUN(index_add(x[0], 0, x[1], x[2])),
      updated(true),
      {ERROR_CASE(index_add(zeros({2, 3}), 0, tensor(std::vector<int64_t>{2}, {1}), zeros({1, 3})), "2")});
  row("index_copy", "", {in({4, 3}), indices({2}, {2, 0}), in({2, 3})}, RUN(index_copy(x[0], 0, x[1], x[2])),
      updated(false));
  row("gather_backward", "", {in({2, 3}), indices({2, 3}, {0, 3, 3, 1, 1, 1})},
      RUN(gather_backward(x[0], {2, 4}, 1, x[1])), [](A x) {
        Array y({2, 4});
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t j = 0; j < 3; ++j) y.at({i, int64_t(x[1].at({i, j}))}) += x[0].at({i, j});
        return y;
      });
  row("take_along_dim", "", {in({3, 4}), indices({1, 2}, {3, 1})}, RUN(take_along_dim(x[0], x[1], 1)),
      [](A x) {
        return pick(x[0], 1, {3, 1});
      });
  const auto scattered = [](A x) {
    Array y = x[0];
    for (int64_t i = 0; i < x[1].size(0); ++i)
      for (int64_t j = 0; j < x[1].size(1); ++j)
        y.at({i, int64_t(x[1].at({i, j}))}) = x.size() > 2 ? x[2].at({i, j}) : 2;
    return y;
  };
  row("scatter", "", {in({3, 4}), indices({2, 2}, {0, 3, 2, 1}), in({2, 2})},
      RUN(scatter(x[0], 1, x[1], x[2])), scattered,
      {ERROR_CASE(scatter(zeros({1, 3}), 1, tensor(std::vector<int64_t>{-4}, {1, 1}), 1.0), "-4")});
  row("scatter", "number", {in({3, 4}), indices({2, 2}, {0, 3, 2, 1})}, RUN(scatter(x[0], 1, x[1], 2)),
      scattered);
}

void add_masks() {
  row("masked_fill", "number", {in({2, 3}), mask({3})}, RUN(masked_fill(x[0], x[1], -2.0)),
      binary([](double v, double m) { return m != 0 ? -2 : v; }));
  row("masked_fill", "tensor", {in({2, 3}), mask({2, 3}), in({3})}, RUN(masked_fill(x[0], x[1], x[2])),
      ternary([](double v, double m, double w) { return m != 0 ? w : v; }));
  Input chosen = mask({2, 3});
  chosen.values = {1, 0, 1, 0, 0, 1};
  add_row({.op = "masked_select",
           .samples = {{in({2, 3}), chosen}},
           .run = RUN(masked_select(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y({3});
                 y.v = {x[0].v[0], x[0].v[2], x[0].v[5]};
                 return y;
               },
           .shape_from_data = true});
  Input some = in({2, 3});
  some.values = {0, 2, 0, -1, 0, 3};
  add_row({.op = "nonzero",
           .samples = {{some}},
           .run = RUN(gradus::nonzero(x[0])),
           .reference =
               [](A) {
                 Array y({3, 2});
                 y.v = {0, 1, 1, 0, 1, 2};
                 return y;
               },
           .fixed_result = true,
           .result = DType::kI64,
           .differentiable = false,
           .shape_from_data = true});
}

void add_advanced_indexing() {
  row("index", "one", {in({4, 3}), indices({2}, {3, -3})}, RUN(index(x[0], {x[1]})),
      [](A x) {
        return pick(x[0], 0, {3, 1});
      },
      {ERROR_CASE(index(zeros({2, 3}), {tensor(std::vector<int64_t>{2}, {1})}), "2"),
       ERROR_CASE(
           index(zeros({2}), {tensor(std::vector<int64_t>{0}, {1}), tensor(std::vector<int64_t>{0}, {1})}),
           "[2]")});
  row("index", "second dim", {in({2, 4}), indices({2}, {3, 0})}, RUN(index(x[0], {Tensor(), x[1]})), [](A x) {
    return pick(x[0], 1, {3, 0});
  });
  row("index", "pairs", {in({3, 4}), indices({3}, {2, 0, 2}), indices({3}, {1, 3, 1})},
      RUN(index(x[0], {x[1], x[2]})), [](A x) {
        Array y({3});
        for (size_t k = 0; k < 3; ++k) y.v[k] = x[0].at({int64_t(x[1].v[k]), int64_t(x[2].v[k])});
        return y;
      });
  const auto put = [](bool add) {
    return [add](A x) {
      Array y = x[0];
      for (size_t k = 0; k < 2; ++k) {
        double& at = y.at({int64_t(x[1].v[k]), int64_t(x[2].v[k])});
        at = (add ? at : 0) + x[3].v[k];
      }
      return y;
    };
  };
  row("index_put", "", {in({3, 4}), indices({2}, {2, 0}), indices({2}, {1, 3}), in({2})},
      RUN(index_put(x[0], {x[1], x[2]}, x[3])), put(false));
  row("index_put", "accumulate", {in({3, 4}), indices({2}, {2, 2}), indices({2}, {1, 1}), in({2})},
      RUN(index_put(x[0], {x[1], x[2]}, x[3], true)), put(true));
}

// Tensor::operator[], read from and assigned to.
void add_brackets() {
  row("Indexed", "read", {in({3, 4, 5})}, RUN(x[0][{Slice(1, 3), None, Ellipsis, -1}].get()), [](A x) {
    Array y = pick(pick(x[0], 0, {1, 2}), 2, {4}, true);
    y.shape.insert(1, 1);
    return y;
  });
  row("Indexed", "read by tensors", {in({4, 5}), indices({3}, {3, 0, 3})},
      RUN(x[0][{x[1], Slice(None, None, 2)}].get()), [](A x) {
        return pick(pick(x[0], 0, {3, 0, 3}), 1, {0, 2, 4});
      });
  row(
      "Indexed", "assign", {in({3, 4}), in({2, 1})},
      [](X x) {
        Tensor y = clone(x[0]);
        y[{Slice(0, 2), Slice(1, 3)}] = x[1];
        return y;
      },
      [](A x) {
        Array y = x[0];
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t j = 1; j < 3; ++j) y.at({i, j}) = x[1].at({i, 0});
        return y;
      });
  row(
      "Indexed", "add and scale", {in({3, 4}), in({4})},
      [](X x) {
        Tensor y = clone(x[0]);
        y[{1}] += x[1];
        y[{Slice(), 0}] *= x[1][{3}].get();
        return y;
      },
      [](A x) {
        Array y = x[0];
        for (int64_t j = 0; j < 4; ++j) y.at({1, j}) += x[1].v[size_t(j)];
        for (int64_t i = 0; i < 3; ++i) y.at({i, 0}) *= x[1].v[3];
        return y;
      });
  Input chosen = mask({2, 3});
  chosen.values = {1, 0, 1, 0, 0, 1};
  add_row({.op = "Indexed",
           .variant = "assign under a mask",
           .samples = {{in({2, 3}), chosen}},
           .run =
               [](X x) {
                 Tensor y = clone(x[0]);
                 y[x[1]] = 7;
                 return y;
               },
           .reference = binary([](double v, double m) { return m != 0 ? 7 : v; }),
           .shape_from_data = true});
}

void add_joining() {
  row("cat", "rows", {in({2, 3}), in({1, 3}), in({3, 3})}, RUN(cat({x[0], x[1], x[2]}, 0)),
      [](A x) {
        Array y({6, 3});
        y.v = x[0].v;
        for (int k : {1, 2}) y.v.insert(y.v.end(), x[size_t(k)].v.begin(), x[size_t(k)].v.end());
        return y;
      },
      {ERROR_CASE(cat({empty({2, 3}), empty({2, 4})}, 0), "[2,3]", "[2,4]")});
  row("cat", "channels", {in({2, 1, 2, 2}), in({2, 2, 2, 2})}, RUN(cat({x[0], x[1]}, 1)), [](A x) {
    Array y({2, 3, 2, 2});
    for (int64_t n = 0; n < 2; ++n)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t h = 0; h < 2; ++h)
          for (int64_t w = 0; w < 2; ++w)
            y.at({n, c, h, w}) = c < 1 ? x[0].at({n, c, h, w}) : x[1].at({n, c - 1, h, w});
    return y;
  });
  row("stack", "", {in({2, 3}), in({2, 3})}, RUN(stack({x[0], x[1]}, 1)),
      [](A x) {
        Array y({2, 2, 3});
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t k = 0; k < 2; ++k)
            for (int64_t j = 0; j < 3; ++j) y.at({i, k, j}) = x[size_t(k)].at({i, j});
        return y;
      },
      {ERROR_CASE(stack({empty({2, 3}), empty({3, 2})}, 0), "[2,3]", "[3,2]")});
  row("split", "second part", {in({2, 5})}, RUN(split(x[0], 2, 1).at(1)), [](A x) {
    return pick(x[0], 1, {2, 3});
  });
  row("split", "short last part", {in({2, 5})}, RUN(split(x[0], 2, 1).at(2)),
      [](A x) { return pick(x[0], 1, {4}); });
  row("split", "sizes", {in({2, 6})}, RUN(split(x[0], std::vector<int64_t>{1, 3, 2}, 1).at(1)),
      [](A x) {
        return pick(x[0], 1, {1, 2, 3});
      },
      {ERROR_CASE(split(empty({2, 6}), std::vector<int64_t>{1, 3}, 1), "6")});
  row("unbind", "", {in({2, 3, 4})}, RUN(unbind(x[0], 1).at(2)),
      [](A x) { return pick(x[0], 1, {2}, true); });
  add_row({.op = "one_hot",
           .samples = {{indices({2, 3}, 4)}},
           .run = RUN(one_hot(x[0], 4)),
           .reference =
               [](A x) {
                 Array y({2, 3, 4});
                 for (size_t i = 0; i < 6; ++i) y.v[i * 4 + size_t(x[0].v[i])] = 1;
                 return y;
               },
           .fixed_result = true,
           .result = DType::kI64,
           .differentiable = false,
           .errors = {ERROR_CASE(one_hot(tensor(std::vector<int64_t>{4}, {1}), 4), "4")}});
  row("chunk", "last", {in({7, 2})}, RUN(chunk(x[0], 3, 0).at(2)), [](A x) { return pick(x[0], 0, {6}); });
}

}  // namespace

static const bool added = [] {
  add_views();
  add_more_views();
  add_indexing();
  add_index_updates();
  add_masks();
  add_advanced_indexing();
  add_brackets();
  add_joining();
  return true;
}();

}  // namespace gradus::optest
