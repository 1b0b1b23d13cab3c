// Rows of the op test table for indexed and masked reads and writes (take, put, scatter_reduce, masked_*,
// embedding), beyond op_table_structure.cc; and further error cases of that file's ops. References are f64
// loops. Each row is tested against its f64 reference, its gradients against difference quotients; op_table.h
// explains the fields.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/autograd/indexing.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

const std::vector<DType> kAll = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                                 DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};
// Of ops that add elements.
const std::vector<DType> kSums = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

Tensor i64(std::vector<int64_t> v) { return tensor(v, {int64_t(v.size())}); }
Tensor bools(const Shape& s) { return full(s, 1, {.dtype = DType::kBool}); }

Input flags(const Shape& shape, std::vector<double> values) {
  Input m = mask(shape);
  m.values = std::move(values);
  return m;
}

void add_flat_indices() {
  add_row({.op = "take",
           .samples = {{in({2, 3}), indices({2, 2}, {0, -1, 5, 5})},
                       {in({3}), indices({0}, 1)},
                       {in({1}), indices({}, 1)}},
           .run = RUN(take(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y(x[1].shape);
                 for (size_t i = 0; i < y.v.size(); ++i)
                   y.v[i] = x[0].v[size_t(x[1].v[i] < 0 ? x[1].v[i] + double(x[0].v.size()) : x[1].v[i])];
                 return y;
               },
           .dtypes = kAll,
           .errors = {ERROR_CASE(take(empty({2, 3}), i64({6})), "[take]", "6"),
                      ERROR_CASE(take(empty({0}), i64({0})), "[take]", "0"),
                      ERROR_CASE(take(empty({2}), empty({2})), "[take]", "f32")}});
  const auto put_at = [](bool add) {
    return [add](A x) {
      Array y = x[0];
      for (size_t i = 0; i < x[1].v.size(); ++i) {
        double& place = y.v[size_t(x[1].v[i] < 0 ? x[1].v[i] + double(y.v.size()) : x[1].v[i])];
        place = (add ? place : 0) + x[2].v[i];
      }
      return y;
    };
  };
  add_row({.op = "put",
           .samples = {{in({2, 3}), indices({2}, {-1, 1}), in({2})}, {in({2}), indices({0}, 1), in({0})}},
           .run = RUN(put(x[0], x[1], x[2])),
           .reference = put_at(false),
           .dtypes = kAll,
           .errors = {ERROR_CASE(put(empty({2}), i64({-3}), empty({1})), "[put]", "-3"),
                      ERROR_CASE(put(empty({2}), i64({0}), empty({2})), "[put]", "[1]", "[2]")}});
  add_row({.op = "put",
           .variant = "accumulate",
           .samples = {{in({2, 3}), indices({3}, {-1, 1, 5}), in({3})}},
           .run = RUN(put(x[0], x[1], x[2], true)),
           .reference = put_at(true),
           .dtypes = kSums});
  const auto filled = [](std::function<double(A)> value) {
    return [value](A x) {
      Array y = x[0];
      for (double i : x[1].v)
        for (int64_t r = 0; r < y.size(0); ++r)
          y.at({r, int64_t(i < 0 ? i + double(y.size(1)) : i)}) = value(x);
      return y;
    };
  };
  add_row({.op = "index_fill",
           .samples = {{in({2, 4}), indices({3}, {0, -1, 0})}, {in({0, 4}), indices({1}, 4)}},
           .run = RUN(index_fill(x[0], 1, x[1], 1)),
           .reference = filled([](A) { return 1; }),
           .dtypes = kAll,
           .errors = {ERROR_CASE(index_fill(empty({2}), 0, i64({2}), 1), "[index_fill]", "2"),
                      ERROR_CASE(index_fill(empty({2}), 0, i64({1}), empty({2})), "[index_fill]", "[2]"),
                      ERROR_CASE(index_fill(empty({2}), 0, empty({2}), 1), "[index_fill]", "f32"),
                      ERROR_CASE(index_fill(empty({2}), 0, full({1, 1}, 0, {.dtype = DType::kI64}), 1),
                                 "[index_fill]", "[1,1]")}});
  add_row({.op = "index_fill",
           .variant = "tensor",
           .samples = {{in({2, 4}), indices({2}, {2, 1}), in({})}},
           .run = RUN(index_fill(x[0], 1, x[1], x[2])),
           .reference = filled([](A x) { return x[2].v[0]; })});
  add_row({.op = "index_select_backward",
           .samples = {{in({2, 3}), indices({3}, {1, 0, 1})}, {in({2, 0}), indices({0}, 1)}},
           .run = RUN(index_select_backward(x[0], {2, 4}, 1, x[1])),
           .reference =
               [](A x) {
                 Array y({2, 4});
                 for (int64_t i = 0; i < 2; ++i)
                   for (int64_t k = 0; k < x[0].size(1); ++k)
                     y.at({i, int64_t(x[1].v[size_t(k)])}) += x[0].at({i, k});
                 return y;
               },
           .dtypes = kSums,
           .errors = {ERROR_CASE(index_select_backward(empty({2, 3}), {2, 4}, 1, i64({0})),
                                 "[index_select_backward]", "[2,3]", "[2,1]")}});
}

// scatter_reduce of x[2] at the indices x[1] into x[0], along dim 1.
Reference reduced(ScatterReduce how, bool include_self) {
  return [=](A x) {
    Array y = x[0];
    for (int64_t i = 0; i < x[1].size(0); ++i) {
      for (int64_t k = 0; k < x[0].size(1); ++k) {
        std::vector<double> met;
        for (int64_t j = 0; j < x[1].size(1); ++j)
          if (int64_t(x[1].at({i, j})) == k) met.push_back(x[2].at({i, j}));
        if (met.empty()) continue;
        if (include_self) met.insert(met.begin(), x[0].at({i, k}));
        double v = met[0];
        for (size_t m = 1; m < met.size(); ++m) {
          const double w = met[m];
          v = how == ScatterReduce::kProd   ? v * w
              : how == ScatterReduce::kAmax ? std::max(v, w)
              : how == ScatterReduce::kAmin ? std::min(v, w)
                                            : v + w;
        }
        y.at({i, k}) = how == ScatterReduce::kMean ? v / double(met.size()) : v;
      }
    }
    return y;
  };
}

void add_scatter_reduce() {
  const std::pair<const char*, ScatterReduce> ways[] = {{"sum", ScatterReduce::kSum},
                                                        {"prod", ScatterReduce::kProd},
                                                        {"mean", ScatterReduce::kMean},
                                                        {"amax", ScatterReduce::kAmax},
                                                        {"amin", ScatterReduce::kAmin}};
  for (const auto& [name, how] : ways) {
    for (bool include_self : {true, false}) {
      add_row({.op = "scatter_reduce",
               .variant = std::string(name) + (include_self ? "" : " without self"),
               .samples = {{distinct({2, 4}), indices({2, 5}, {0, 1, 1, 3, 1, 2, 2, 2, 2, 0}),
                            distinct({2, 5}, 0.3, 2.1)},
                           {distinct({3, 2}), indices({1, 2}, 2), distinct({2, 3}, 0.3, 2.1)},
                           {in({2, 2}), indices({2, 0}, 2), in({2, 0})}},
               .run =
                   [how = how, include_self](X x) {
                     return scatter_reduce(x[0], 1, x[1], x[2], how, {.include_self = include_self});
                   },
               .reference = reduced(how, include_self),
               .terms = 16,
               .dtypes = kSums,
               .errors = {{"index",
                           [how = how] { scatter_reduce(zeros({2}), 0, i64({2}), zeros({1}), how); },
                           {"[scatter_reduce]", "2"}},
                          {"shapes",
                           [how = how] {
                             scatter_reduce(zeros({2, 3}), 0, i64({1}), zeros({1}), how);
                           },
                           {"[scatter_reduce]", "[2,3]"}},
                          {"dtypes",
                           [how = how] {
                             scatter_reduce(zeros({2}), 0, i64({1}), zeros({1}, {.dtype = DType::kI64}), how);
                           },
                           {"[scatter_reduce]", "i64"}},
                          {"bool",
                           [how = how] { scatter_reduce(bools({2}), 0, i64({1}), bools({1}), how); },
                           {"[scatter_reduce]", "bool"}}}});
    }
  }
  Input with_zeros = in({2, 4}), src_zeros = in({2, 5});
  with_zeros.values = {0, 2, 0, -1, 1, 2, 3, 4};
  src_zeros.values = {2, 0, 3, 0, -1, 4, 0, 2, 3, 1};
  // prod has no second derivative where several zeros of src meet; in `lone` a destination gets one at most.
  const Input lone = [] {
    Input v = in({2, 5});
    v.values = {2, 0, 3, 0, -1, 4, 2, 0, 3, 1};
    return v;
  }();
  add_row({.op = "scatter_reduce",
           .variant = "prod of lone zeros",
           .samples = {{with_zeros, indices({2, 5}, {0, 1, 1, 2, 3, 0, 1, 2, 2, 2}), lone}},
           .run = RUN(scatter_reduce(x[0], 1, x[1], x[2], ScatterReduce::kProd)),
           .reference = reduced(ScatterReduce::kProd, true)});
  add_row({.op = "scatter_reduce",
           .variant = "prod of zeros",
           .samples = {{with_zeros, indices({2, 5}, {0, 1, 1, 2, 3, 0, 1, 2, 2, 2}), src_zeros}},
           .run = RUN(scatter_reduce(x[0], 1, x[1], x[2], ScatterReduce::kProd)),
           .reference = reduced(ScatterReduce::kProd, true),
           .second_order = false,
           .dtypes = {DType::kF32, DType::kF64, DType::kI64, DType::kI32}});
}

void add_masks() {
  const Input chosen = flags({2, 3}, {1, 0, 1, 0, 0, 1});
  const Reference replaced = [](A x) {
    Array y = x[0];
    size_t next = 0;
    for (size_t i = 0; i < y.v.size(); ++i)
      if (x[1].v[i] != 0) y.v[i] = x[2].v[next++];
    return y;
  };
  add_row({.op = "masked_scatter",
           .samples = {{in({2, 3}), chosen, in({4})},
                       {in({2, 3}), chosen, in({1, 3})},
                       {in({2, 3}), flags({2, 3}, {0, 0, 0, 0, 0, 0}), in({0})},
                       {in({0}), mask({0}), in({2})}},
           .run = RUN(masked_scatter(x[0], x[1], x[2])),
           .reference = replaced,
           .dtypes = kAll,
           .errors = {
               ERROR_CASE(masked_scatter(zeros({3}), bools({3}), zeros({2})), "[masked_scatter]", "3", "2"),
               ERROR_CASE(masked_scatter(zeros({3}), zeros({3}), zeros({3})), "[masked_scatter]", "f32"),
               ERROR_CASE(masked_scatter(zeros({3}), bools({3}), i64({1, 2, 3})), "[masked_scatter]", "i64"),
               ERROR_CASE(masked_scatter(zeros({3}), bools({2}), zeros({3})), "[masked_scatter]", "[2]")}});
  add_row({.op = "masked_scatter",
           .variant = "broadcast mask",
           .samples = {{in({2, 3}), flags({3}, {1, 0, 1}), in({5})}},
           .run = RUN(masked_scatter(x[0], x[1], x[2])),
           .reference = [](A x) {
             Array y = x[0];
             y.v[0] = x[2].v[0], y.v[2] = x[2].v[1], y.v[3] = x[2].v[2], y.v[5] = x[2].v[3];
             return y;
           }});
  add_row({.op = "masked_scatter_backward",
           .samples = {{in({2, 3}), chosen}},
           .run = RUN(masked_scatter_backward(x[0], x[1], {2, 2})),
           .reference =
               [](A x) {
                 Array y({2, 2});
                 y.v = {x[0].v[0], x[0].v[2], x[0].v[5], 0};
                 return y;
               },
           .dtypes = kAll,
           .errors = {ERROR_CASE(masked_scatter_backward(zeros({3}), zeros({3}), {3}),
                                 "[masked_scatter_backward]", "f32"),
                      ERROR_CASE(masked_scatter_backward(zeros({3}), bools({2}), {3}),
                                 "[masked_scatter_backward]", "[2]"),
                      ERROR_CASE(masked_scatter_backward(zeros({3}), bools({3}), {2}), "3", "2")}});
  add_row({.op = "masked_select_backward",
           .samples = {{in({4}), chosen}},
           .run = RUN(masked_select_backward(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y({2, 3});
                 y.v = {x[0].v[0], 0, x[0].v[1], 0, 0, x[0].v[2]};
                 return y;
               },
           .dtypes = kAll,
           .errors = {
               ERROR_CASE(masked_select_backward(zeros({3}), zeros({3})), "[masked_select_backward]", "f32"),
               ERROR_CASE(masked_select_backward(zeros({2}), bools({3})), "3", "2")}});
  add_row({.op = "masked_select",
           .variant = "broadcast",
           .samples = {{in({2, 3}), flags({2, 1}, {0, 1})}, {in({3}), flags({2, 1}, {0, 1})}},
           .run = RUN(masked_select(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y({3});
                 std::copy(x[0].v.end() - 3, x[0].v.end(), y.v.begin());
                 return y;
               },
           .dtypes = kAll,
           .errors = {ERROR_CASE(masked_select(zeros({3}), zeros({3})), "[masked_select]", "f32"),
                      ERROR_CASE(masked_select(zeros({3}), bools({2})), "[masked_select]", "[2]")},
           .shape_from_data = true});
  // Several blocks of the kernels.
  add_row({.op = "masked_select",
           .variant = "many",
           .samples = {{in({40000}), mask({40000})}},
           .run = RUN(masked_select(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y;
                 for (size_t i = 0; i < x[0].v.size(); ++i)
                   if (x[1].v[i] != 0) y.v.push_back(x[0].v[i]);
                 y.shape = {int64_t(y.v.size())};
                 return y;
               },
           .differentiable = false,
           .dtypes = kAll,
           .shape_from_data = true});
  add_row({.op = "masked_scatter",
           .variant = "many",
           .samples = {{in({40000}), mask({40000}), in({40000})}},
           .run = RUN(masked_scatter(x[0], x[1], x[2])),
           .reference = replaced,
           .differentiable = false,
           .dtypes = kAll});
  add_row({.op = "argwhere",
           .samples = {{flags({200, 100},
                              [] {
                                std::vector<double> v(20000);
                                for (size_t i = 0; i < v.size(); ++i) v[i] = i % 7 == 2;
                                return v;
                              }())},
                       {flags({0, 3}, {})},
                       {flags({}, {1})}},
           .run = RUN(argwhere(x[0])),
           .reference =
               [](A x) {
                 Array y;
                 int64_t count = 0;
                 for (size_t i = 0; i < x[0].v.size(); ++i) {
                   if (x[0].v[i] == 0) continue;
                   ++count;
                   if (x[0].dim() == 2) y.v.push_back(double(i / 100)), y.v.push_back(double(i % 100));
                 }
                 y.shape = {count, x[0].dim()};
                 return y;
               },
           .fixed_result = true,
           .result = DType::kI64,
           .differentiable = false,
           .errors = {ERROR_CASE(argwhere(empty({2}, {.device = {DeviceType::kMeta, 0}})), "meta")},
           .shape_from_data = true});
}

void add_tables() {
  const Reference rows = [](A x) {
    Array y;
    y.shape = x[0].shape;
    y.shape.push_back(x[1].shape[1]);
    for (double i : x[0].v)
      for (int64_t j = 0; j < x[1].size(1); ++j) y.v.push_back(x[1].at({int64_t(i), j}));
    return y;
  };
  add_row(
      {.op = "embedding",
       .samples = {{indices({2, 3}, {3, 0, 3, 1, 3, 2}), in({4, 5})},
                   {indices({}, 2), in({2, 3})},
                   {indices({0}, 1), in({2, 1})}},
       .run = RUN(embedding(x[0], x[1])),
       .reference = rows,
       .dtypes = kAll,
       .errors = {ERROR_CASE(embedding(i64({4}), zeros({4, 2})), "[embedding]", "4"),
                  ERROR_CASE(embedding(i64({-1}), zeros({4, 2})), "[embedding]", "-1"),
                  ERROR_CASE(embedding(i64({1}), zeros({4})), "[embedding]", "[4]"),
                  ERROR_CASE(embedding(zeros({1}), zeros({4, 2})), "[embedding]", "f32"),
                  ERROR_CASE(embedding(i64({1}), zeros({4, 2}), {.padding_idx = 4}), "[embedding]", "4")}});
  // The options change the gradient but not the value, so differences cannot check it: embedding_backward's
  // rows do.
  add_row({.op = "embedding",
           .variant = "options",
           .samples = {{indices({5}, {3, 0, 3, 1, 3}), in({4, 2})}},
           .run = RUN(embedding(x[0], x[1], {.padding_idx = -1, .scale_grad_by_freq = true})),
           .reference = rows,
           .differentiable = false});
  // The reduction of the weights' rows of each bag, which ends at ends[b]; entries `skip` do not count.
  const auto bags = [](BagMode mode, double skip, const Array& index, const Array& weight,
                       const std::vector<int64_t>& ends) {
    Array y({int64_t(ends.size()), weight.size(1)});
    for (int64_t b = 0, i = 0; b < y.size(0); ++b) {
      double count = 0;
      for (; i < ends[size_t(b)]; ++i) {
        if (index.v[size_t(i)] == skip) continue;
        ++count;
        for (int64_t j = 0; j < y.size(1); ++j) {
          const double w = weight.at({int64_t(index.v[size_t(i)]), j});
          double& sum = y.at({b, j});
          sum = mode != BagMode::kMax ? sum + w : count == 1 ? w : std::max(sum, w);
        }
      }
      for (int64_t j = 0; j < y.size(1) && mode == BagMode::kMean; ++j) y.at({b, j}) /= std::max(count, 1.0);
    }
    return y;
  };
  for (const BagMode mode : {BagMode::kSum, BagMode::kMean, BagMode::kMax}) {
    const Tensor w = zeros({4, 2});
    add_row({.op = "embedding_bag",
             .variant = concat("rows ", int(mode)),
             .samples = {{indices({2, 3}, {3, 0, 3, 1, 3, 2}), distinct({4, 5})},
                         {indices({0, 2}, 2), in({2, 3})},
                         {indices({2, 0}, 2), in({2, 3})}},
             .run = RUN(embedding_bag(x[0], x[1], {}, {.mode = mode})),
             .reference =
                 [=](A x) {
                   std::vector<int64_t> ends;
                   for (int64_t b = 1; b <= x[0].size(0); ++b) ends.push_back(b * x[0].size(1));
                   return bags(mode, -1, x[0], x[1], ends);
                 },
             .dtypes = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16},
             .errors = {
                 ERROR_CASE(embedding_bag(i64({4}), w, i64({0})), "[embedding_bag]", "4"),
                 ERROR_CASE(embedding_bag(i64({1}), w), "offsets is undefined"),
                 ERROR_CASE(embedding_bag(reshape(i64({1}), {1, 1, 1}), w), "i64[1,1,1]"),
                 ERROR_CASE(embedding_bag(i64({1}), w, zeros({1})), "f32[1]"),
                 ERROR_CASE(embedding_bag(zeros({1, 2}), w), "f32[1,2]"),
                 ERROR_CASE(embedding_bag(reshape(i64({1}), {1, 1}), w, i64({0})), "i64[1,1]", "i64[1]"),
                 ERROR_CASE(embedding_bag(i64({1}), w, i64({1})), "begin with 0", "1"),
                 ERROR_CASE(embedding_bag(i64({1}), w, i64({})), "begin with 0", "none"),
                 ERROR_CASE(embedding_bag(i64({1, 2}), w, i64({0, 2, 1})), "1 after 2"),
                 ERROR_CASE(embedding_bag(i64({1, 2}), w, i64({0, 3})), "at most 2", "3"),
                 ERROR_CASE(embedding_bag(i64({}), w, i64({}), {.include_last_offset = true}),
                            "include_last_offset"),
                 ERROR_CASE(embedding_bag(i64({1}), w, i64({0}), {.per_sample_weights = ones({1})}), "kSum"),
                 ERROR_CASE(embedding_bag(i64({1}), w, i64({0}),
                                          {.mode = BagMode::kSum, .per_sample_weights = ones({2})}),
                            "i64[1]", "f32[2]"),
                 ERROR_CASE(embedding_bag(i64({1}), w, i64({0}), {.mode = BagMode::kMax, .sparse = true}),
                            "kMax", "sparse"),
                 ERROR_CASE(embedding_bag(i64({1}), w, i64({0}), {.padding_idx = 4}), "padding_idx", "4")}});
    add_row({.op = "embedding_bag",
             .variant = concat("offsets ", int(mode)),
             .samples = {{indices({6}, {3, 0, 3, 1, 3, 2}), distinct({4, 5}), indices({4}, {0, 2, 2, 5})}},
             .run = RUN(embedding_bag(x[0], x[1], x[2],
                                      {.mode = mode, .include_last_offset = true, .padding_idx = -4})),
             .reference = [=](A x) {
               const auto& v = x[2].v;
               return bags(mode, 0, x[0], x[1], std::vector<int64_t>(v.begin() + 1, v.end()));
             }});
  }
  // The table's gradient; rows `skip` get none.
  const auto table = [](int64_t skip) {
    return [=](A x) {
      Array y({4, x[0].shape.back()});
      for (size_t i = 0; i < x[1].v.size(); ++i)
        for (int64_t j = 0; j < y.size(1); ++j)
          if (int64_t(x[1].v[i]) != skip)
            y.at({int64_t(x[1].v[i]), j}) += x[0].v[i * size_t(y.size(1)) + size_t(j)];
      return y;
    };
  };
  const std::vector<Sample> dys = {{in({2, 3, 5}), indices({2, 3}, {3, 0, 3, 1, 3, 2})},
                                   {in({70}), indices({}, 2)},
                                   {in({0, 2}), indices({0}, 1)}};
  add_row(
      {.op = "embedding_backward",
       .samples = dys,
       .run = RUN(embedding_backward(x[0], x[1], 4)),
       .reference = table(-1),
       .dtypes = kSums,
       .errors = {
           ERROR_CASE(embedding_backward(zeros({2, 3}), i64({0}), 4), "[embedding_backward]", "[2,3]", "[1]"),
           ERROR_CASE(embedding_backward(zeros({1, 3}), i64({4}), 4), "[embedding_backward]", "4")}});
  add_row({.op = "embedding_backward",
           .variant = "skip",
           .samples = dys,
           .run = RUN(embedding_backward(x[0], x[1], 4, 3)),
           .reference = table(3),
           .dtypes = kSums});
  add_row(
      {.op = "embedding_renorm_",
       .samples = {{in({4, 3}, 0.5, 2), indices({3}, {3, 0, 3})}},
       .run =
           [](X x) {
             const Tensor w = contiguous(clone(x[0]));
             embedding_renorm_(w, x[1], 1.5);
             return w;
           },
       .reference =
           [](A x) {
             Array y = x[0];
             const auto& rows = x[1].v;
             for (int64_t i : {0, 3}) {
               if (std::find(rows.begin(), rows.end(), double(i)) == rows.end()) continue;
               double square = 0;
               for (int64_t j = 0; j < 3; ++j) square += y.at({i, j}) * y.at({i, j});
               const double norm = std::sqrt(square);
               if (norm <= 1.5) continue;
               for (int64_t j = 0; j < 3; ++j) y.at({i, j}) *= 1.5 / (norm + 1e-7);
             }
             return y;
           },
       .terms = 16,
       .differentiable = false,
       .dtypes = kSums,
       .errors = {ERROR_CASE(embedding_renorm_(zeros({2, 2}), i64({0}), -1), "[embedding_renorm_]", "-1"),
                  ERROR_CASE(embedding_renorm_(zeros({2}), i64({0}), 1), "[embedding_renorm_]", "[2]"),
                  ERROR_CASE(embedding_renorm_(t(zeros({2, 3})), i64({0}), 1), "[embedding_renorm_]",
                             "strided"),
                  ERROR_CASE(embedding_renorm_(zeros({2, 2}), i64({2}), 1), "[embedding_renorm_]", "2")}});
}

// Errors of ops whose rows are in op_table_structure.cc, op_table_creation.cc and op_table_elementwise.cc.
void add_errors() {
  const auto errors = [](const char* op, std::vector<ErrorCase> cases) {
    add_row({.op = op, .variant = "errors", .samples = {}, .errors = std::move(cases)});
  };
  const Tensor x = empty({2, 3});
  errors("squeeze", {ERROR_CASE(squeeze(x, 2), "[squeeze]", "2")});
  errors("unsqueeze", {ERROR_CASE(unsqueeze(x, 3), "[unsqueeze]", "3")});
  errors("movedim", {ERROR_CASE(movedim(x, 0, 2), "[movedim]", "2")});
  errors("slice",
         {ERROR_CASE(slice(x, 0, 0, 2, -1), "[slice]", "-1"), ERROR_CASE(slice(x, 2, 0, 1), "[slice]", "2")});
  errors("slice_backward", {ERROR_CASE(slice_backward(x, {2, 2}, 1, 0), "[2,3]")});
  errors("index_copy", {ERROR_CASE(index_copy(x, 0, i64({2}), zeros({1, 3})), "[index_copy]", "2"),
                        ERROR_CASE(index_copy(x, 0, i64({1}), zeros({2, 3})), "[index_copy]", "[2,3]")});
  errors("index_put", {ERROR_CASE(index_put(x, {i64({1})}, zeros({2})), "[2]"),
                       ERROR_CASE(index_put(x, {i64({2})}, zeros({3})), "2"),
                       ERROR_CASE(index_put(x, {bools({3})}, zeros({3})), "[3]", "[2,3]")});
  errors("gather_backward", {ERROR_CASE(gather_backward(x, {2, 3}, 1, i64({1})), "[2,3]")});
  errors("take_along_dim", {ERROR_CASE(take_along_dim(x, i64({1}), 0), "[take_along_dim]", "[1]"),
                            ERROR_CASE(take_along_dim(x, full({1, 1}, 5, {.dtype = DType::kI64}), 0), "5")});
  errors("scatter",
         {ERROR_CASE(scatter(x, 0, full({1, 1}, 2, {.dtype = DType::kI64}), 0.0), "[scatter]", "2"),
          ERROR_CASE(
              scatter(x, 0, full({1, 1}, 1, {.dtype = DType::kI64}), full({1, 1}, 1, {.dtype = DType::kI64})),
              "[scatter]", "i64")});
  errors("scatter_add", {ERROR_CASE(scatter_add(x, 0, full({1, 1}, 2, {.dtype = DType::kI64}), zeros({1, 1})),
                                    "[scatter_add]", "2"),
                         ERROR_CASE(scatter_add(x, 0, i64({1}), zeros({1})), "[scatter_add]", "[2,3]")});
  errors("masked_fill", {ERROR_CASE(masked_fill(x, x, 1), "[masked_fill]", "f32"),
                         ERROR_CASE(masked_fill(x, bools({4, 2, 3}), 1), "[masked_fill]", "[4,2,3]")});
  errors("nonzero",
         {ERROR_CASE(nonzero(empty({2}, {.device = {DeviceType::kMeta, 0}})), "[nonzero]", "meta")});
  errors("chunk", {ERROR_CASE(chunk(x, 0), "[chunk]", "0")});
  errors("unbind", {ERROR_CASE(unbind(x, 2), "2")});
  errors("split", {ERROR_CASE(split(x, 0), "[split]", "0")});
  errors("cat", {ERROR_CASE(cat({}), "[cat]"), ERROR_CASE(cat({empty({}), empty({})}), "[cat]", "stack")});
  errors("stack", {ERROR_CASE(stack({}), "[stack]")});
  errors("one_hot",
         {ERROR_CASE(one_hot(i64({0}), 0), "[one_hot]", "0"), ERROR_CASE(one_hot(i64({})), "[one_hot]")});
  errors("copy_", {ERROR_CASE(copy_(x, empty({4})), "[copy_]", "[4]", "[2,3]")});
  errors("full", {ERROR_CASE(full({-1}, 0), "-1")});
  errors("ones", {ERROR_CASE(ones({-1}), "-1")});
  errors("eye", {ERROR_CASE(eye(-3), "-3")});
  errors("arange", {ERROR_CASE(arange(0, 1, 0), "[arange]", "0")});
  errors("rand", {ERROR_CASE(rand({-1}), "-1")});
  errors("randn", {ERROR_CASE(randn({-1}), "-1")});
  errors("bernoulli", {ERROR_CASE(bernoulli(i64({1})), "[bernoulli]", "i64")});
  errors("Indexed", {{"too many",
                      [=] {
                        (void)x[{0, 0, 0}].get();
                      },
                      {"[index]", "[2,3]"},
                      "index"},
                     {"two Ellipses",
                      [=] {
                        (void)x[{Ellipsis, Ellipsis}].get();
                      },
                      {"[index]", "Ellipsis"},
                      "index"},
                     {"step", [=] { (void)x[Slice(None, None, -1)].get(); }, {"-1"}, "slice"},
                     {"range",
                      [=] {
                        (void)x[{0, 3}].get();
                      },
                      {"3"},
                      "select"},
                     {"assigned shape",
                      [=] {
                        Tensor y = x;
                        y[{0}] = zeros({2});
                      },
                      {"[2]"},
                      "copy_"},
                     {"mask", [=] { (void)x[bools({3})].get(); }, {"[3]", "[2,3]"}, "index"}});
}

void add_parts() {
  const auto replaced = [](std::function<bool(int64_t, int64_t)> in_place) {  // in a matrix, row-major
    return [in_place](A x) {
      Array y = x[0];
      size_t next = 0;
      for (int64_t i = 0; i < y.size(0); ++i)
        for (int64_t j = 0; j < y.size(1); ++j)
          if (in_place(i, j)) y.at({i, j}) = x[1].v[next++];
      return y;
    };
  };
  add_row({.op = "select_scatter",
           .samples = {{in({3, 4}), in({3})}},
           .run = RUN(select_scatter(x[0], x[1], 1, -1)),
           .reference = replaced([](int64_t, int64_t j) { return j == 3; }),
           .dtypes = kAll,
           .errors = {
               ERROR_CASE(select_scatter(empty({2, 3}), empty({2}), 0, 0), "[select_scatter]", "[2]", "[3]"),
               ERROR_CASE(select_scatter(empty({2, 3}), empty({3}), 0, 2), "2")}});
  add_row({.op = "slice_scatter",
           .samples = {{in({2, 5}), in({2, 2})}},
           .run = RUN(slice_scatter(x[0], x[1], 1, 1, 5, 2)),
           .reference = replaced([](int64_t, int64_t j) { return j % 2 == 1; }),
           .dtypes = kAll,
           .errors = {ERROR_CASE(slice_scatter(empty({2, 3}), empty({2}), 0, 0, 1), "[slice_scatter]", "[2]",
                                 "[1,3]"),
                      ERROR_CASE(slice_scatter(empty({2}), empty({2}), 0, 0, 2, 0), "0")}});
  add_row({.op = "diagonal_scatter",
           .samples = {{in({3, 4}), in({2})}},
           .run = RUN(diagonal_scatter(x[0], x[1], {.offset = 2})),
           .reference = replaced([](int64_t i, int64_t j) { return j - i == 2; }),
           .dtypes = kAll,
           .errors = {
               ERROR_CASE(diagonal_scatter(empty({2, 3}), empty({3})), "[diagonal_scatter]", "[2]", "[3]")}});
}

// Large enough for kernels to share them out among threads.
void add_large() {
  const auto large = [](const char* op, std::vector<Input> inputs, std::function<Tensor(X)> run,
                        Reference r) {
    add_row({.op = op,
             .variant = "large",
             .samples = {std::move(inputs)},
             .run = std::move(run),
             .reference = std::move(r),
             .terms = 64,
             .differentiable = false,
             .dtypes = {DType::kF32, DType::kBF16}});
  };
  // The element that index x[1][i][j] along `dim` selects.
  const auto place = [](A x, int64_t i, int64_t j, int dim) {
    const int64_t k = int64_t(x[1].at({i, j}));
    return dim == 0 ? std::pair(k, j) : std::pair(i, k);
  };
  for (int dim : {0, 1}) {
    const Shape s = dim == 0 ? Shape{90, 500} : Shape{500, 90};
    large("gather", {in(s), indices({s[0] - 3, s[1] - 5}, 85)}, RUN(gather(x[0], dim, x[1])), [=](A x) {
      Array y(x[1].shape);
      for (int64_t i = 0; i < y.size(0); ++i)
        for (int64_t j = 0; j < y.size(1); ++j) {
          const auto [a, b] = place(x, i, j, dim);
          y.at({i, j}) = x[0].at({a, b});
        }
      return y;
    });
    large("scatter_add", {in(s), indices(s, 85), in(s)}, RUN(scatter_add(x[0], dim, x[1], x[2])), [=](A x) {
      Array y = x[0];
      for (int64_t i = 0; i < x[1].size(0); ++i)
        for (int64_t j = 0; j < x[1].size(1); ++j) {
          const auto [a, b] = place(x, i, j, dim);
          y.at({a, b}) += x[2].at({i, j});
        }
      return y;
    });
  }
  large("index_select", {in({200, 70}), indices({900}, 200)}, RUN(index_select(x[0], 0, x[1])), [](A x) {
    Array y({900, 70});
    for (int64_t i = 0; i < 900; ++i)
      for (int64_t j = 0; j < 70; ++j) y.at({i, j}) = x[0].at({int64_t(x[1].v[size_t(i)]), j});
    return y;
  });
  large("index_select", {in({200, 300}), indices({250}, 300)}, RUN(index_select(x[0], 1, x[1])), [](A x) {
    Array y({200, 250});
    for (int64_t i = 0; i < 200; ++i)
      for (int64_t j = 0; j < 250; ++j) y.at({i, j}) = x[0].at({i, int64_t(x[1].v[size_t(j)])});
    return y;
  });
  large("index_add", {in({50, 200}), indices({400}, 50), in({400, 200})}, RUN(index_add(x[0], 0, x[1], x[2])),
        [](A x) {
          Array y = x[0];
          for (int64_t i = 0; i < 400; ++i)
            for (int64_t j = 0; j < 200; ++j) y.at({int64_t(x[1].v[size_t(i)]), j}) += x[2].at({i, j});
          return y;
        });
}

}  // namespace

static const bool added = [] {
  add_flat_indices();
  add_scatter_reduce();
  add_masks();
  add_tables();
  add_parts();
  add_large();
  add_errors();
  return true;
}();

}  // namespace gradus::optest
