// Rows of the op table (op_table.h) for ops that reorder, repeat, window, split and stack:
// autograd/ops/arrange.h, and those of view.h and join.h that op_table_structure.cc lacks.
#include <functional>
#include <optional>

#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

using Coords = std::vector<int64_t>;
// Maps an element of the result to its source in x; nothing: 0.
using From = std::function<std::optional<Coords>(const Coords&)>;

const std::vector<DType> kAll = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI64,
                                 DType::kI32, DType::kI16, DType::kI8,  DType::kU8,   DType::kBool};

int64_t position(const Shape& shape, const Coords& c) {
  int64_t at = 0;
  for (int d = 0; d < shape.size(); ++d) at = at * shape[d] + c[size_t(d)];
  return at;
}

// Calls f(coordinates) for all elements of `shape`, row-major.
void each(const Shape& shape, const std::function<void(const Coords&)>& f) {
  for (int64_t i = 0; i < shape.product(); ++i) {
    Coords c(size_t(shape.size()));
    for (int64_t d = shape.size() - 1, left = i; d >= 0; left /= shape[int(d)], --d)
      c[size_t(d)] = left % shape[int(d)];
    f(c);
  }
}

// y[c] = x[from(c)], or 0 where that is nothing.
Array pull(const Array& x, const Shape& out, const From& from) {
  Array y(out);
  each(out, [&](const Coords& c) {
    if (const auto source = from(c)) y.v[size_t(position(out, c))] = x.v[size_t(position(x.shape, *source))];
  });
  return y;
}

void add(const char* op, const char* variant, std::vector<Sample> samples, std::function<Tensor(X)> run,
         Reference reference, std::vector<ErrorCase> errors = {}, std::vector<DType> dtypes = kAll,
         bool mixes_devices = false, bool differentiable = true) {
  add_row({.op = op,
           .variant = variant,
           .samples = std::move(samples),
           .run = std::move(run),
           .reference = std::move(reference),
           .terms = 8,
           .differentiable = differentiable,
           .dtypes = std::move(dtypes),
           .errors = std::move(errors),
           .mixes_devices = mixes_devices});
}

// The same elements in another shape.
Reference same_order(std::function<Shape(const Shape&)> shape) {
  return [shape](A x) {
    Array y = x[0];
    y.shape = shape(y.shape);
    return y;
  };
}
Reference same_order(const Shape& s) {
  return same_order([s](const Shape&) { return s; });
}

void add_flips() {
  const auto flipped = [](Dims dims) {
    return [dims](A x) {
      return pull(x[0], x[0].shape, [&](Coords c) {
        for (int64_t d : dims) {
          const int at = int(d < 0 ? d + x[0].dim() : d);
          c[size_t(at)] = x[0].shape[at] - 1 - c[size_t(at)];
        }
        return c;
      });
    };
  };
  const std::vector<Sample> any = {
      {in({3, 4})}, {in({2, 3, 2, 5})}, {in({1, 1})}, {in({0, 3})}, {in({3, 70})}};
  add("flip", "", any, RUN(flip(x[0], {0, -1})), flipped({0, -1}),
      {ERROR_CASE(flip(empty({2, 3}), {1, -1}), "[flip]", "[2,3]"),
       ERROR_CASE(flip(empty({2, 3}), {2}), "[flip]", "2")});
  add("flip", "the last dim", any, RUN(flip(x[0], {-1})), flipped({-1}));
  add("flip", "no dim", any, RUN(flip(x[0], {})), flipped({}));
  add("fliplr", "", any, RUN(fliplr(x[0])), flipped({1}),
      {ERROR_CASE(fliplr(empty({3})), "[fliplr]", "[3]")});
  add("flipud", "", any, RUN(flipud(x[0])), flipped({0}), {ERROR_CASE(flipud(empty({})), "[flipud]", "[]")});

  const auto rolled = [](Dims shifts) {  // one shift per dim
    return [shifts](A x) {
      return pull(x[0], x[0].shape, [&](Coords c) {
        for (int d = 0; d < shifts.size(); ++d) {
          const int64_t n = x[0].shape[d];
          c[size_t(d)] = ((c[size_t(d)] - shifts[d]) % n + n) % n;
        }
        return c;
      });
    };
  };
  add("roll", "", any, RUN(roll(x[0], {1, -7}, {0, 1})), rolled({1, -7}),
      {ERROR_CASE(roll(empty({2, 3}), {1}, {0, 1}), "[roll]", "[1]", "[0,1]"),
       ERROR_CASE(roll(empty({2, 3}), {1, 2}), "[roll]", "[1,2]")});
  add("roll", "one dim twice", any, RUN(roll(x[0], {1, 1}, {1, 1})), rolled({0, 2}));
  add("roll", "flattened", any, RUN(roll(x[0], {5})), [](A x) {
    Array y = x[0];
    for (size_t i = 0; i < y.v.size(); ++i) y.v[(i + 5) % y.v.size()] = x[0].v[i];
    return y;
  });

  const std::vector<Sample> planes = {{in({3, 4})}, {in({2, 3, 2, 5})}, {in({1, 1})}, {in({0, 3})}};
  const auto turned = [](int quarters) {  // numpy's definition, a quarter at a time
    return [quarters](A x) {
      Array y = x[0];
      for (int q = 0; q < quarters; ++q) {
        Shape s = y.shape;
        std::swap(s[0], s[1]);
        const int64_t n = y.shape[1];
        y = pull(y, s, [&](Coords c) {
          const int64_t row = c[0];
          c[0] = c[1], c[1] = n - 1 - row;
          return c;
        });
      }
      return y;
    };
  };
  add("rot90", "", planes, RUN(rot90(x[0])), turned(1),
      {ERROR_CASE(rot90(empty({2, 3}), 1, {0}), "[rot90]", "[0]"),
       ERROR_CASE(rot90(empty({2, 3}), 1, {1, -1}), "[rot90]", "[1,-1]")});
  add("rot90", "2", planes, RUN(rot90(x[0], 2)), turned(2));
  add("rot90", "-1", planes, RUN(rot90(x[0], -1)), turned(3));
  add("rot90", "4", planes, RUN(rot90(x[0], 4)), turned(0));
}

void add_triangles() {
  const std::vector<Sample> any = {
      {in({3, 4})}, {in({4, 3})}, {in({2, 3, 2, 5})}, {in({1, 1})}, {in({0, 3})}};
  for (int64_t diagonal : {0, 1, -2, 9}) {
    const auto kept = [diagonal](bool upper) {
      return [=](A x) {
        return pull(x[0], x[0].shape, [&](const Coords& c) -> std::optional<Coords> {
          const int64_t off = c[c.size() - 1] - c[c.size() - 2];
          if (upper ? off >= diagonal : off <= diagonal) return c;
          return {};
        });
      };
    };
    static std::vector<std::string> names;
    names.reserve(8);
    names.push_back(std::to_string(diagonal));
    add("tril", names.back().c_str(), any, RUN(tril(x[0], diagonal)), kept(false),
        {ERROR_CASE(tril(empty({3})), "[tril]", "[3]")});
    add("triu", names.back().c_str(), any, RUN(triu(x[0], diagonal)), kept(true),
        {ERROR_CASE(triu(empty({3})), "[triu]", "[3]")});
  }
}

void add_diagonals() {
  const auto read = [](int64_t offset) {  // of the last two dims
    return [offset](A x) {
      Shape s = x[0].shape;
      const int64_t n = s[s.size() - 2], m = s[s.size() - 1];
      s.erase(s.size() - 1);
      s[s.size() - 1] = std::max<int64_t>(0, offset >= 0 ? std::min(n, m - offset) : std::min(n + offset, m));
      return pull(x[0], s, [&](Coords c) {
        const int64_t i = c.back();
        c.back() = offset >= 0 ? i : i - offset;
        c.push_back(offset >= 0 ? i + offset : i);
        return c;
      });
    };
  };
  const std::vector<Sample> any = {{in({3, 4})}, {in({2, 3, 2, 5})}, {in({1, 1})}, {in({0, 3})}};
  add("diagonal", "", any, RUN(diagonal(x[0], {.dim1 = -2, .dim2 = -1})), read(0),
      {ERROR_CASE(diagonal(empty({3})), "[diagonal]", "[3]"),
       ERROR_CASE(diagonal(empty({2, 3}), {.dim1 = 1, .dim2 = -1}), "[diagonal]", "1")});
  add("diagonal", "above", any, RUN(diagonal(x[0], {1, -2, -1})), read(1));
  add("diagonal", "below", any, RUN(diagonal(x[0], {-1, -2, -1})), read(-1));
  add("diagonal", "outside", any, RUN(diagonal(x[0], {7, -2, -1})), read(7));
  add("diagonal", "of the first dims", {{in({3, 2, 4})}}, RUN(diagonal(x[0])), [](A x) {
    return pull(x[0], {4, 2}, [](const Coords& c) { return Coords{c[1], c[1], c[0]}; });
  });
  add("diagonal_backward", "", {{in({2, 3})}},
      RUN(diagonal_backward(x[0], {2, 4, 3}, {.offset = -1, .dim1 = 1, .dim2 = 2})),
      [](A x) {
        return pull(x[0], {2, 4, 3}, [](const Coords& c) -> std::optional<Coords> {
          if (c[1] - 1 != c[2]) return {};
          return Coords{c[0], c[2]};
        });
      },
      {ERROR_CASE(diagonal_backward(empty({3}), {2, 2}), "[diagonal_backward]", "[3]", "[2]")});
  const std::vector<Sample> vectors = {{in({3})}, {in({2, 3})}, {in({2, 2, 2, 2})}, {in({1})}, {in({0})}};
  for (int64_t offset : {0, 2, -1}) {
    static std::vector<std::string> names;
    names.reserve(4);
    names.push_back(std::to_string(offset));
    add("diag_embed", names.back().c_str(), vectors, RUN(diag_embed(x[0], {.offset = offset})),
        [=](A x) {
          Shape s = x[0].shape;
          const int64_t n = s.back() + std::abs(offset);
          s[s.size() - 1] = n;
          s.push_back(n);
          return pull(x[0], s, [&](Coords c) -> std::optional<Coords> {
            const int64_t row = c[c.size() - 2], col = c.back();
            if (col - row != offset) return {};
            c.pop_back();
            c.back() = std::min(row, col);
            return c;
          });
        },
        {ERROR_CASE(diag_embed(empty({})), "[diag_embed]"),
         ERROR_CASE(diag_embed(empty({2}), {.dim1 = 0, .dim2 = 0}), "[diag_embed]", "0")});
  }
  add("diag_embed", "in front", {{in({2, 3})}}, RUN(diag_embed(x[0], {.dim1 = 0, .dim2 = 1})), [](A x) {
    return pull(x[0], {3, 3, 2}, [](const Coords& c) -> std::optional<Coords> {
      if (c[0] != c[1]) return {};
      return Coords{c[2], c[0]};
    });
  });
  add("diag", "of a matrix", {{in({3, 4})}}, RUN(diag(x[0], 1)), read(1),
      {ERROR_CASE(diag(empty({2, 3, 4})), "[diag]", "[2,3,4]")});
  add("diag", "of a vector", {{in({2})}}, RUN(diag(x[0])), [](A x) {
    Array y({2, 2});
    y.v = {x[0].v[0], 0, 0, x[0].v[1]};
    return y;
  });
}

void add_repeats() {
  const std::vector<Sample> any = {{in({2, 3})}, {in({1, 3})}, {in({1, 1})}, {in({0, 3})}};
  const auto modulo = [](Shape repeats) {
    return [repeats](A x) {
      Shape s;
      const int extra = repeats.size() - x[0].dim();
      for (int d = 0; d < repeats.size(); ++d)
        s.push_back(repeats[d] * (d < extra ? 1 : x[0].shape[d - extra]));
      return pull(x[0], s, [&](const Coords& c) {
        Coords from;
        for (int d = extra; d < repeats.size(); ++d) from.push_back(c[size_t(d)] % x[0].shape[d - extra]);
        return from;
      });
    };
  };
  add("repeat", "", any, RUN(repeat(x[0], {2, 3})), modulo({2, 3}),
      {ERROR_CASE(repeat(empty({2, 3}), {2}), "[repeat]", "[2]", "[2,3]"),
       ERROR_CASE(repeat(empty({2}), {-1}), "[repeat]", "-1")});
  add("repeat", "in front", any, RUN(repeat(x[0], {2, 1, 3})), modulo({2, 1, 3}));
  add("repeat", "never", any, RUN(repeat(x[0], {0, 2})), modulo({0, 2}));
  add("repeat", "many dims", {{in({2, 1, 2, 1, 2, 1, 2, 2})}}, RUN(repeat(x[0], {2, 1, 2, 2, 1, 1, 1, 2})),
      modulo({2, 1, 2, 2, 1, 1, 1, 2}));
  add("repeat", "image", {{in({2, 3, 2, 2})}}, RUN(repeat(x[0], {1, 2, 1, 2})), modulo({1, 2, 1, 2}));
  add("tile", "", any, RUN(tile(x[0], {2})), modulo({1, 2}), {ERROR_CASE(tile(empty({2, 2}), {-1}), "-1")});

  const auto in_place = [](int dim, int64_t n) {
    return [=](A x) {
      Shape s = x[0].shape;
      s[dim] *= n;
      return pull(x[0], s, [&](Coords c) {
        c[size_t(dim)] /= n;
        return c;
      });
    };
  };
  const auto i64 = [](std::vector<int64_t> v) { return tensor(v, {int64_t(v.size())}); };
  add("repeat_interleave", "", any, RUN(repeat_interleave(x[0], 2, 0)), in_place(0, 2),
      {ERROR_CASE(repeat_interleave(empty({2}), -1), "[repeat_interleave]", "-1"),
       ERROR_CASE(repeat_interleave(empty({2}), i64({3, -1}), 0), "[repeat_interleave]", "-1"),
       ERROR_CASE(repeat_interleave(empty({2}), i64({3, 1}), 0, 5), "[repeat_interleave]", "4", "5"),
       ERROR_CASE(repeat_interleave(empty({2}), i64({3, 1, 1}), 0), "[repeat_interleave]", "[3]"),
       ERROR_CASE(repeat_interleave(empty({2}), empty({2}), 0), "[repeat_interleave]", "f32")});
  add("repeat_interleave", "last dim", any, RUN(repeat_interleave(x[0], 3, -1)), in_place(1, 3));
  add("repeat_interleave", "flattened", any, RUN(repeat_interleave(x[0], 2)), [](A x) {
    Array y({2 * x[0].shape.product()});
    for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = x[0].v[i / 2];
    return y;
  });
  const Reference counted = [](A x) {
    Coords rows;
    for (size_t i = 0; i < x[1].v.size(); ++i) rows.insert(rows.end(), size_t(x[1].v[i]), int64_t(i));
    return pull(x[0], {int64_t(rows.size()), x[0].shape[1]}, [&](Coords c) {
      c[0] = rows[size_t(c[0])];
      return c;
    });
  };
  add_row({.op = "repeat_interleave",
           .variant = "counts",
           .samples = {{in({3, 2}), indices({3}, {2, 0, 3})}, {in({0, 2}), indices({0}, 1)}},
           .run = RUN(repeat_interleave(x[0], x[1], 0)),
           .reference = counted,
           .dtypes = kAll,
           .shape_from_data = true});
  add("repeat_interleave", "counts and size", {{in({3, 2}), indices({3}, {2, 0, 3})}},
      RUN(repeat_interleave(x[0], x[1], 0, 5)), counted);
  add("repeat_interleave", "one count", {{in({3, 2}), indices({1}, std::vector<double>{2})}},
      RUN(repeat_interleave(x[0], x[1], 0, 6)), in_place(0, 2));
}

void add_grids() {
  const std::vector<Sample> three = {{in({2}), in({3}), in({4})}, {in({1}), in({}), in({0})}};
  const auto grid = [](int which, bool xy) {
    return [=](A x) {
      Shape s = {x[0].shape.product(), x[1].shape.product(), x[2].shape.product()};
      if (xy) std::swap(s[0], s[1]);
      const size_t at = size_t(xy && which < 2 ? 1 - which : which);
      return pull(x[size_t(which)], s,
                  [&](const Coords& c) { return x[size_t(which)].dim() == 0 ? Coords{} : Coords{c[at]}; });
    };
  };
  for (int which : {0, 1, 2}) {
    add("meshgrid",
        which == 0   ? "0"
        : which == 1 ? "1"
                     : "2",
        three, RUN(meshgrid({x[0], x[1], x[2]})[size_t(which)]), grid(which, false),
        {ERROR_CASE(meshgrid({}), "[meshgrid]"), ERROR_CASE(meshgrid({empty({2, 3})}), "[meshgrid]", "[2,3]"),
         ERROR_CASE(meshgrid({empty({2}), empty({2}, {.dtype = DType::kI64})}), "[meshgrid]", "i64")});
    add("meshgrid",
        which == 0   ? "xy 0"
        : which == 1 ? "xy 1"
                     : "xy 2",
        three, RUN(meshgrid({x[0], x[1], x[2]}, MeshIndexing::kXY)[size_t(which)]), grid(which, true));
  }
  add("cartesian_prod", "", {{in({2}), in({3})}}, RUN(cartesian_prod({x[0], x[1]})),
      [](A x) {
        Array y({6, 2});
        for (int64_t i = 0; i < 6; ++i)
          y.at({i, 0}) = x[0].v[size_t(i / 3)], y.at({i, 1}) = x[1].v[size_t(i % 3)];
        return y;
      },
      {ERROR_CASE(cartesian_prod({}), "[cartesian_prod]"),
       ERROR_CASE(cartesian_prod({empty({2, 3})}), "[cartesian_prod]", "[2,3]")});
  add("cartesian_prod", "of one", {{in({2})}}, RUN(cartesian_prod({x[0]})), same_order(Shape{2}));
}

void add_windows() {
  const auto windows = [](int64_t size, int64_t step) {  // of the last dim
    return [=](A x) {
      Shape s = x[0].shape;
      s[s.size() - 1] = (s.back() - size) / step + 1;
      s.push_back(size);
      return pull(x[0], s, [&](Coords c) {
        const int64_t in_window = c.back();
        c.pop_back();
        c.back() = c.back() * step + in_window;
        return c;
      });
    };
  };
  const std::vector<Sample> any = {{in({7})}, {in({2, 5})}, {in({2, 3, 2, 4})}, {in({0, 3})}};
  add("unfold_dim", "", any, RUN(unfold_dim(x[0], -1, 3, 1)), windows(3, 1),
      {ERROR_CASE(unfold_dim(empty({2, 3}), 1, 4, 1), "[unfold_dim]", "4", "3"),
       ERROR_CASE(unfold_dim(empty({3}), 0, 1, 0), "[unfold_dim]", "0"),
       ERROR_CASE(unfold_dim(empty({}), 0, 1, 1), "[unfold_dim]")});
  add("unfold_dim", "apart", any, RUN(unfold_dim(x[0], -1, 2, 3)), [=](A x) { return windows(2, 3)(x); });
  add("unfold_dim", "empty windows", {{in({4})}}, RUN(unfold_dim(x[0], 0, 0, 1)), windows(0, 1));
  add("unfold_dim_backward", "", {{in({2, 2, 3})}}, RUN(unfold_dim_backward(x[0], {2, 6}, 1, 3, 2)),
      [](A x) {
        Array y({2, 6});
        for (int64_t i = 0; i < 2; ++i)
          for (int64_t w = 0; w < 2; ++w)
            for (int64_t k = 0; k < 3; ++k) y.at({i, w * 2 + k}) += x[0].at({i, w, k});
        return y;
      },
      {ERROR_CASE(unfold_dim_backward(empty({2, 3}), {6}, 0, 2, 1), "[unfold_dim_backward]", "[2,3]",
                  "[5,2]")},
      {DType::kF32, DType::kF64, DType::kF16, DType::kBF16});
  add_row({.op = "as_strided",
           .samples = {{in({3, 4})}},
           .run = RUN(as_strided(x[0], {3, 3}, {2, 1}, 1)),
           .reference =
               [](A x) {
                 return pull(x[0], {3, 3}, [](const Coords& c) {
                   const int64_t at = 1 + 2 * c[0] + c[1];
                   return Coords{at / 4, at % 4};
                 });
               },
           .dtypes = kAll,
           .layouts = false,  // the result depends on x's storage
           .errors = {ERROR_CASE(as_strided(empty({4}), {3}, {2}, 0), "[as_strided]", "[3]", "[2]"),
                      ERROR_CASE(as_strided(empty({4}), {2}, {-1}, 3), "[as_strided]", "[-1]"),
                      ERROR_CASE(as_strided(empty({4}), {2}, {1}, -1), "[as_strided]", "-1"),
                      ERROR_CASE(as_strided(empty({4}), {2}, {1, 1}), "[as_strided]", "[1,1]")}});
  add_row({.op = "as_strided",
           .variant = "of a part",
           .samples = {{in({3, 4})}},
           .run = RUN(as_strided(narrow(x[0], 1, 1, 2), {2, 2}, {0, 1})),
           .reference =
               [](A x) {
                 return pull(x[0], {2, 2}, [](const Coords& c) { return Coords{0, 1 + c[1]}; });
               },
           .layouts = false});
}

void add_more_views() {
  add("reshape_as", "", {{in({2, 6}), in({3, 4})}}, RUN(reshape_as(x[0], x[1])), same_order({3, 4}),
      {ERROR_CASE(reshape_as(empty({2, 3}), empty({4})), "[2,3]", "[4]")}, kAll, true);
  add("view_as", "", {{in({2, 6}), in({3, 4})}}, RUN(view_as(contiguous(x[0]), x[1])), same_order({3, 4}),
      {ERROR_CASE(view_as(empty({2, 3}), empty({4})), "[2,3]", "[4]")}, kAll, true);
  add(
      "expand_as", "", {{in({3, 1}), in({2, 3, 4})}}, RUN(expand_as(x[0], x[1])),
      [](A x) {
        return pull(x[0], {2, 3, 4}, [](const Coords& c) { return Coords{c[1], 0}; });
      },
      {ERROR_CASE(expand_as(empty({2}), empty({3})), "[2]", "[3]")}, kAll, true);
  add("unflatten", "", {{in({2, 12, 2})}, {in({0, 12, 1})}}, RUN(unflatten(x[0], 1, {3, -1})),
      same_order([](const Shape& s) {
        return Shape{s[0], 3, 4, s[2]};
      }),
      {ERROR_CASE(unflatten(empty({2, 12}), 1, {5, 2}), "[unflatten]", "[5,2]", "12"),
       ERROR_CASE(unflatten(empty({2, 12}), 1, {5, -1}), "[unflatten]", "[5,-1]"),
       ERROR_CASE(unflatten(empty({2, 1}), 1, {}), "[unflatten]")});
  add("unflatten", "last", {{in({2, 6})}}, RUN(unflatten(x[0], -1, {2, 3})), same_order({2, 2, 3}));
  const Reference swapped = [](A x) { return transpose_to(x[0], {0, 2, 1}); };
  add("swapaxes", "", {{in({2, 3, 4})}}, RUN(swapaxes(x[0], 1, -1)), swapped,
      {ERROR_CASE(swapaxes(empty({2}), 0, 1), "1")});
  add("swapdims", "", {{in({2, 3, 4})}}, RUN(swapdims(x[0], 1, 2)), swapped,
      {ERROR_CASE(swapdims(empty({2}), 0, 1), "1")});
  add("movedim", "several", {{in({2, 3, 4, 5})}}, RUN(movedim(x[0], {0, 1}, {-1, 0})),
      [](A x) {
        return transpose_to(x[0], {1, 2, 3, 0});
      },
      {ERROR_CASE(movedim(empty({2, 3}), {0, 1}, {0}), "[movedim]", "[0,1]"),
       ERROR_CASE(movedim(empty({2, 3}), {0, 0}, {0, 1}), "[movedim]", "[0,0]")});
  add("squeeze", "several", {{in({1, 3, 1, 1})}}, RUN(squeeze(x[0], {0, 1, -1})), same_order({3, 1}),
      {ERROR_CASE(squeeze(empty({1, 1}), {0, -2}), "[squeeze]", "[0,-2]")});
}

// Ops that return lists: a row tests one element, op(xs)[k].
void add_parts() {
  const auto narrowed = [](int dim, int64_t start, int64_t n) {
    return [=](A x) {
      Shape s = x[0].shape;
      s[dim] = n;
      return pull(x[0], s, [&](Coords c) {
        c[size_t(dim)] += start;
        return c;
      });
    };
  };
  using List = std::vector<int64_t>;
  add("tensor_split", "", {{in({7, 2})}}, RUN(tensor_split(x[0], 3).at(0)),
      [narrowed](A x) { return narrowed(0, 0, (x[0].size(0) + 2) / 3)(x); },
      {ERROR_CASE(tensor_split(empty({2}), 0), "[tensor_split]", "0"),
       ERROR_CASE(tensor_split(empty({}), 1), "[tensor_split]")});
  add("tensor_split", "last", {{in({7, 2})}}, RUN(tensor_split(x[0], 3).at(2)), narrowed(0, 5, 2));
  add("tensor_split", "more than there are", {{in({2, 2})}}, RUN(tensor_split(x[0], 3).at(2)),
      narrowed(0, 2, 0));
  add("tensor_split", "indices", {{in({2, 7})}}, RUN(tensor_split(x[0], List{2, -1}, 1).at(1)),
      narrowed(1, 2, 4));
  add("tensor_split", "backwards", {{in({7})}}, RUN(tensor_split(x[0], List{5, 2}).at(2)), narrowed(0, 2, 5));
  add("hsplit", "", {{in({2, 4})}}, RUN(hsplit(x[0], 2).at(1)), narrowed(1, 2, 2),
      {ERROR_CASE(hsplit(empty({}), 1), "[hsplit]"),
       ERROR_CASE(hsplit(empty({2, 5}), 2), "[hsplit]", "5", "2")});
  add("hsplit", "vector", {{in({4})}}, RUN(hsplit(x[0], List{1}).at(1)), narrowed(0, 1, 3));
  add("vsplit", "", {{in({4, 2})}}, RUN(vsplit(x[0], 2).at(1)), narrowed(0, 2, 2),
      {ERROR_CASE(vsplit(empty({4}), 2), "[vsplit]", "[4]")});
  add("vsplit", "indices", {{in({4, 2})}}, RUN(vsplit(x[0], List{1, 3}).at(1)), narrowed(0, 1, 2));
  add("dsplit", "", {{in({1, 2, 4})}}, RUN(dsplit(x[0], 4).at(3)), narrowed(2, 3, 1),
      {ERROR_CASE(dsplit(empty({4, 4}), 2), "[dsplit]", "[4,4]")});
  add("dsplit", "indices", {{in({1, 2, 4})}}, RUN(dsplit(x[0], List{3}).at(0)), narrowed(2, 0, 3));
}

Array joined(A x, int dim) {
  Shape s = x[0].shape;
  s[dim] += x[1].shape[dim];
  Array y(s);
  each(s, [&](const Coords& c) {
    Coords from = c;
    const bool second = c[size_t(dim)] >= x[0].shape[dim];
    if (second) from[size_t(dim)] -= x[0].shape[dim];
    const Array& a = x[second];
    y.v[size_t(position(s, c))] = a.v[size_t(position(a.shape, from))];
  });
  return y;
}

void add_stacks() {
  const auto seen_as = [](std::function<Shape(const Shape&)> shape, int dim) {
    return [=](A x) {
      std::vector<Array> wide = x;
      for (Array& a : wide) a.shape = shape(a.shape);
      return joined(wide, dim);
    };
  };
  const auto itself = [](const Shape& s) { return s; };
  const std::vector<Sample> vectors = {{in({3}), in({3})}}, matrices = {{in({2, 3}), in({2, 3})}};
  add("hstack", "", matrices, RUN(hstack({x[0], x[1]})), seen_as(itself, 1),
      {ERROR_CASE(hstack({}), "[hstack]"),
       ERROR_CASE(hstack({empty({2, 3}), empty({3, 3})}), "[2,3]", "[3,3]")});
  add("hstack", "vectors", {{in({2}), in({3})}, {in({0}), in({1})}}, RUN(hstack({x[0], x[1]})),
      seen_as(itself, 0));
  add("vstack", "", matrices, RUN(vstack({x[0], x[1]})), seen_as(itself, 0),
      {ERROR_CASE(vstack({}), "[vstack]")});
  add("vstack", "vectors", vectors, RUN(vstack({x[0], x[1]})),
      seen_as(
          [](const Shape& s) {
            return Shape{1, s[0]};
          },
          0));
  add("dstack", "", matrices, RUN(dstack({x[0], x[1]})),
      seen_as(
          [](const Shape& s) {
            return Shape{s[0], s[1], 1};
          },
          2),
      {ERROR_CASE(dstack({}), "[dstack]")});
  add("dstack", "vectors", vectors, RUN(dstack({x[0], x[1]})),
      seen_as(
          [](const Shape& s) {
            return Shape{1, s[0], 1};
          },
          2));
  add("column_stack", "", {{in({2}), in({2, 3})}}, RUN(column_stack({x[0], x[1]})),
      [](A x) {
        std::vector<Array> wide = x;
        wide[0].shape = {2, 1};
        return joined(wide, 1);
      },
      {ERROR_CASE(column_stack({}), "[column_stack]")});
  const std::vector<Sample> any = {{in({})}, {in({3})}, {in({2, 3})}, {in({2, 1, 3, 2})}, {in({0})}};
  add("atleast_1d", "", any, RUN(atleast_1d(x[0])),
      same_order([](const Shape& s) { return s.empty() ? Shape{1} : s; }),
      {ERROR_CASE(atleast_1d({}), "undefined")});
  add("atleast_2d", "", any, RUN(atleast_2d(x[0])), same_order([](const Shape& s) {
        return s.size() < 2 ? Shape{1, s.product()} : s;
      }),
      {ERROR_CASE(atleast_2d({}), "undefined")});
  add("atleast_3d", "", any, RUN(atleast_3d(x[0])), same_order([](const Shape& s) {
        return s.size() < 2 ? Shape{1, s.product(), 1} : s.size() == 2 ? Shape{s[0], s[1], 1} : s;
      }),
      {ERROR_CASE(atleast_3d({}), "undefined")});
  add(
      "broadcast_tensors", "", {{in({3, 1}), in({2})}}, RUN(broadcast_tensors({x[0], x[1]}).at(1)),
      [](A x) {
        return pull(x[1], {3, 2}, [](const Coords& c) { return Coords{c[1]}; });
      },
      {ERROR_CASE(broadcast_tensors({empty({2}), empty({3})}), "[broadcast_tensors]", "[2]", "[3]")}, kAll,
      true);
}

void add_later_ones() {
  add("moveaxis", "", {{in({2, 3, 4, 5})}}, RUN(moveaxis(x[0], {0, 1}, {-1, 0})),
      [](A x) {
        return transpose_to(x[0], {1, 2, 3, 0});
      },
      {ERROR_CASE(moveaxis(empty({2}), 0, 1), "1")});
  add("moveaxis", "one", {{in({2, 3, 4})}}, RUN(moveaxis(x[0], 0, 1)), [](A x) {
    return transpose_to(x[0], {1, 0, 2});
  });
  add("combinations", "", {{in({4})}, {in({1})}, {in({0})}}, RUN(combinations(x[0])),
      [](A x) {
        Array y;
        for (size_t i = 0; i < x[0].v.size(); ++i)
          for (size_t j = i + 1; j < x[0].v.size(); ++j) y.v.push_back(x[0].v[i]), y.v.push_back(x[0].v[j]);
        y.shape = {int64_t(y.v.size()) / 2, 2};
        return y;
      },
      {ERROR_CASE(combinations(empty({2, 2})), "[combinations]", "[2,2]"),
       ERROR_CASE(combinations(empty({2}), -1), "[combinations]", "-1")});
  add("combinations", "with replacement", {{in({3})}}, RUN(combinations(x[0], 2, {.with_replacement = true})),
      [](A x) {
        Array y({6, 2});
        const size_t picks[] = {0, 0, 0, 1, 0, 2, 1, 1, 1, 2, 2, 2};
        for (size_t i = 0; i < 12; ++i) y.v[i] = x[0].v[picks[i]];
        return y;
      });
  add("block_diag", "", {{in({2, 1}), in({3}), in({})}}, RUN(block_diag({x[0], x[1], x[2]})),
      [](A x) {
        Array y({4, 5});
        y.at({0, 0}) = x[0].v[0], y.at({1, 0}) = x[0].v[1];
        for (int64_t j = 0; j < 3; ++j) y.at({2, 1 + j}) = x[1].v[size_t(j)];
        y.at({3, 4}) = x[2].v[0];
        return y;
      },
      {ERROR_CASE(block_diag({}), "[block_diag]"),
       ERROR_CASE(block_diag({empty({1, 2, 3})}), "[block_diag]", "[1,2,3]")});
  add(
      "triu", "large", {{in({300, 301})}}, RUN(triu(x[0])),
      [](A x) {
        return pull(x[0], {300, 301}, [](const Coords& c) -> std::optional<Coords> {
          if (c[1] < c[0]) return {};
          return c;
        });
      },
      {}, {DType::kF32}, false, false);
  // Large enough to be split among threads.
  const auto large = [](const char* op, std::function<Tensor(X)> run, From from) {
    add(
        op, "large", {{in({300, 301})}}, std::move(run),
        [from](A x) {
          return pull(x[0], {300, 301}, from);
        },
        {}, {DType::kF32}, false, false);
  };
  large("flip", RUN(flip(x[0], {0, 1})), [](const Coords& c) { return Coords{299 - c[0], 300 - c[1]}; });
  large("roll", RUN(roll(x[0], {1, -7}, {0, 1})), [](const Coords& c) {
    return Coords{(c[0] + 299) % 300, (c[1] + 7) % 301};
  });
}

}  // namespace

static const bool added = [] {
  add_flips();
  add_triangles();
  add_diagonals();
  add_repeats();
  add_grids();
  add_windows();
  add_more_views();
  add_parts();
  add_stacks();
  add_later_ones();
  return true;
}();

}  // namespace gradus::optest
