// Ops that reorder, repeat or select elements. Most are composed of views, expand and index_select, and
// inherit their gradient rules. flip, roll, tril, triu and as_strided call a raw:: op (without gradients) and
// record their own rule.
#include "gradus/autograd/ops/arrange.h"

#include <algorithm>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arrange.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {

Tensor flip(const Tensor& x, const Dims& dims) {
  const OpCall call("flip", {{"x", x}});
  return autograd::record_unary("flip", x, raw::flip(x, dims),
                                [dims](const Tensor& dy) { return flip(dy, dims); });
}

Tensor fliplr(const Tensor& x) {
  const OpCall call("fliplr", {{"x", x}});
  if (x.dim() < 2) throw ShapeError("fliplr", "expected at least 2 dims, got x ", describe(x));
  return flip(x, {1});
}

Tensor flipud(const Tensor& x) {
  const OpCall call("flipud", {{"x", x}});
  if (x.dim() < 1) throw ShapeError("flipud", "expected at least 1 dim, got x ", describe(x));
  return flip(x, {0});
}

Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims) {
  const OpCall call("roll", {{"x", x}});
  Tensor y = raw::roll(x, shifts, dims);
  if (Recorder r{"roll", x}) {
    Dims back = shifts;
    for (int i = 0; i < back.size(); ++i) {
      const int64_t n = dims.empty() ? x.numel() : x.dim() == 0 ? 1 : x.size(dims[i]);
      back[i] = n == 0 ? 0 : -(back[i] % n);
    }
    r.record(y, wrt(x, [back, dims](const Tensor& dy) { return roll(dy, back, dims); }));
  }
  return y;
}

Tensor rot90(const Tensor& x, int64_t k, const Dims& dims) {
  const OpCall call("rot90", {{"x", x}});
  // A rotation by 90 degrees is a flip and a transpose.
  if (dims.size() != 2 || x.dim() < 2 ||
      wrap_dim(dims[0], x.dim(), "rot90") == wrap_dim(dims[1], x.dim(), "rot90"))
    throw ShapeError("rot90", "expected two different dims, got ", dims, ": x ", describe(x));
  switch ((k % 4 + 4) % 4) {
    case 1:
      return transpose(flip(x, {dims[1]}), dims[0], dims[1]);
    case 2:
      return flip(x, dims);
    case 3:
      return transpose(flip(x, {dims[0]}), dims[0], dims[1]);
    default:
      return x;
  }
}

Tensor tril(const Tensor& x, int64_t diagonal) {
  const OpCall call("tril", {{"x", x}});
  return autograd::record_unary("tril", x, raw::tril(x, diagonal),
                                [diagonal](const Tensor& dy) { return tril(dy, diagonal); });
}

Tensor triu(const Tensor& x, int64_t diagonal) {
  const OpCall call("triu", {{"x", x}});
  return autograd::record_unary("triu", x, raw::triu(x, diagonal),
                                [diagonal](const Tensor& dy) { return triu(dy, diagonal); });
}

Tensor diag_embed(const Tensor& x, DiagEmbedOptions options) {
  const OpCall call("diag_embed", {{"x", x}});
  if (x.dim() == 0) throw ShapeError("diag_embed", "x has no dims: x ", describe(x));
  const int n = x.dim() + 1, a = wrap_dim(options.dim1, n, "diag_embed"),
            b = wrap_dim(options.dim2, n, "diag_embed");
  if (a == b) throw ShapeError("diag_embed", "dim1 and dim2 are both ", a, ": x ", describe(x));
  const Checked last("diag_embed", x.shape().back());
  const int64_t size = options.offset < 0 ? last - options.offset : last + options.offset;
  Shape s;
  for (int i = 0, batch = 0; i < n; ++i) s.push_back(i == a || i == b ? size : x.shape()[batch++]);
  // The gradient of diagonal: zeros of shape s, with x on the diagonal.
  return diagonal_backward(x, s, {.offset = options.offset, .dim1 = a, .dim2 = b});
}

Tensor diag(const Tensor& x, int64_t diagonal_) {
  const OpCall call("diag", {{"x", x}});
  if (x.dim() == 1) return diag_embed(x, {.offset = diagonal_});
  if (x.dim() == 2) return diagonal(x, {.offset = diagonal_});
  throw ShapeError("diag", "expected a vector or a matrix, got x ", describe(x));
}

Tensor repeat(const Tensor& x, const Dims& repeats) {
  const OpCall call("repeat", {{"x", x}});
  const int extra = repeats.size() - x.dim();
  if (extra < 0)
    throw ShapeError("repeat", "repeats ", repeats, " are fewer than the dims of x ", describe(x));
  for (int64_t r : repeats)
    if (r < 0) throw ValueError("repeat", "repeats ", repeats, " are not all at least 0: x ", describe(x));
  // A dim of size n > 1 repeated r times is viewed as [1, n], expanded to [r, n], and merged to [r * n].
  const auto input_size = [&](int i) { return i < extra ? 1 : x.shape()[i - extra]; };
  Shape merged;
  for (int i = 0; i < repeats.size(); ++i) merged.push_back(Checked("repeat", input_size(i)) * repeats[i]);
  checked_numel(merged, "repeat");
  const auto is_split = [&](int i) { return repeats[i] != 1 && input_size(i) != 1; };
  int dims = repeats.size();
  for (int i = 0; i < repeats.size(); ++i) dims += is_split(i);
  if (dims > kMaxDims) {  // repeats the last of the split dims in a second step, which saves one dim
    int last = 0;
    for (int i = 0; i < repeats.size(); ++i)
      if (is_split(i)) last = i;
    Dims others = repeats;
    others[last] = 1;
    const Tensor y = repeat(x, others);
    int64_t before = 1, behind = 1;
    for (int i = 0; i < y.dim(); ++i) (i < last ? before : behind) *= y.shape()[i];
    const Tensor rows = expand(reshape(y, {before, 1, behind}), {before, repeats[last], behind});
    return reshape(contiguous(rows), merged);
  }
  Shape split, wide;
  for (int i = 0; i < repeats.size(); ++i) {
    split.push_back(is_split(i) ? 1 : input_size(i));
    wide.push_back(input_size(i) == 1 || is_split(i) ? repeats[i] : input_size(i));
    if (is_split(i)) split.push_back(input_size(i)), wide.push_back(input_size(i));
  }
  return contiguous(reshape(expand(reshape(x, split), wide), merged));
}

Tensor tile(const Tensor& x, const Dims& repeats) {
  const OpCall call("tile", {{"x", x}});
  Dims all = Dims::filled(std::max(0, x.dim() - repeats.size()), 1);
  for (int64_t r : repeats) all.push_back(r);
  return repeat(x, all);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  const OpCall call("repeat_interleave", {{"x", x}});
  constexpr const char* kOp = "repeat_interleave";
  if (repeats < 0) throw ValueError(kOp, "expected at least 0 repeats, got ", repeats);
  if (!dim) return repeat_interleave(reshape(x, {x.numel()}), repeats, 0);
  if (x.dim() == 0) return repeat_interleave(reshape(x, {1}), repeats, *dim);
  const int d = wrap_dim(*dim, x.dim(), kOp);
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.dim(); ++i) (i <= d ? outer : inner) *= x.shape()[i];
  Shape s = x.shape();
  s[d] = Checked(kOp, s[d]) * repeats;
  return contiguous(reshape(expand(reshape(x, {outer, 1, inner}), {outer, repeats, inner}), s));
}

Tensor repeat_interleave(const Tensor& x, const Tensor& counts, std::optional<int64_t> dim,
                         std::optional<int64_t> size) {
  const OpCall call("repeat_interleave", {{"x", x}, {"counts", counts}});
  constexpr const char* kOp = "repeat_interleave";
  if (!dim) return repeat_interleave(reshape(x, {x.numel()}), counts, 0, size);
  if (x.dim() == 0) return repeat_interleave(reshape(x, {1}), counts, *dim, size);
  const int d = wrap_dim(*dim, x.dim(), kOp);
  if (counts.dtype() != DType::kI64 && counts.dtype() != DType::kI32)
    throw DTypeError(kOp, "expected i64 or i32 counts, got counts ", describe(counts),
                     conversion_hint("counts", DType::kI64));
  autograd::check_same_device(kOp, "x", x, "counts", counts);
  const int64_t n = x.size(d);
  if (counts.dim() > 1 || (counts.numel() != n && counts.numel() != 1))
    throw ShapeError(kOp, "expected ", n, " counts or one, got ", describe(counts), ": x ", describe(x));
  // repeat_index returns the index i, counts[i] times, for each i.
  const Tensor each = raw::expand(raw::reshape(counts, {counts.numel()}), {n});
  return index_select(x, d, raw::repeat_index(each, size));
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, MeshIndexing indexing) {
  const OpCall call("meshgrid", "xs", xs);
  if (autograd::Casting cast{"meshgrid", xs}) return meshgrid(cast(xs), indexing);
  if (xs.empty()) throw ValueError("meshgrid", "expected at least one vector, got none");
  Shape grid;
  for (const Tensor& x : xs) {
    if (x.dim() > 1) throw ShapeError("meshgrid", "expected vectors, got ", describe(x));
    if (x.dtype() != xs[0].dtype())
      throw DTypeError("meshgrid", "vectors differ in dtype: ", describe(x), " after ", describe(xs[0]));
    if (!are_compatible_devices(x.device(), xs[0].device()))
      throw DeviceError("meshgrid", "vectors are on different devices: ", describe(x), " after ",
                        describe(xs[0]));
    grid.push_back(x.numel());
  }
  const int n = grid.size();
  const bool swaps = indexing == MeshIndexing::kXY && n > 1;
  if (swaps) std::swap(grid[0], grid[1]);
  std::vector<Tensor> out;
  for (int i = 0; i < n; ++i) {
    Shape s = Shape::filled(n, 1);
    s[swaps && i < 2 ? 1 - i : i] = xs[i].numel();
    out.push_back(expand(reshape(xs[i], s), grid));
  }
  return out;
}

Tensor cartesian_prod(const std::vector<Tensor>& xs) {
  const OpCall call("cartesian_prod", "xs", xs);
  if (xs.empty()) throw ValueError("cartesian_prod", "expected at least one vector, got none");
  for (const Tensor& x : xs)
    if (x.dim() != 1) throw ShapeError("cartesian_prod", "expected vectors, got ", describe(x));
  if (xs.size() == 1) return xs[0];
  std::vector<Tensor> columns;
  for (const Tensor& grid : meshgrid(xs)) columns.push_back(flatten(grid));
  return stack(columns, 1);
}

namespace {

// Returns the number of ways to choose r of n elements, with or without replacement.
int64_t combination_count(int64_t n, int64_t r, bool with_replacement) {
  if (with_replacement && n > 0) n = Checked("combinations", n) + r - 1;
  if (r > n) return 0;
  int64_t count = 1;
  for (int64_t i = 1; i <= std::min(r, n - r); ++i)  // exact division: count becomes the binomial C(n, i)
    count = (Checked("combinations", count) * (n - i + 1)) / i;
  return count;
}

}  // namespace

Tensor combinations(const Tensor& x, int64_t r, CombinationOptions options) {
  const OpCall call("combinations", {{"x", x}});
  if (x.dim() != 1) throw ShapeError("combinations", "expected a vector, got ", describe(x));
  if (r < 0) throw ValueError("combinations", "expected at least 0 elements at a time, got ", r);
  if (r == 0) return reshape(narrow(x, 0, 0, 0), {0, 0});
  const int64_t n = x.numel(), step = options.with_replacement ? 0 : 1;
  const int64_t count = combination_count(n, r, options.with_replacement);
  const Tensor index = empty({Checked("combinations", count) * r}, {.dtype = DType::kI64});
  int64_t* row = index.ptr<int64_t>();
  for (int64_t i = 0; count > 0 && i < r; ++i) row[i] = step * i;
  // The next row in lexicographic order: increments the last index that is not at its maximum, and sets the
  // indices after it to their minima.
  for (int64_t k = 1; k < count; ++k, row += r) {
    int64_t at = r - 1;
    while (row[at] == n - 1 - step * (r - 1 - at)) --at;
    std::copy_n(row, at, row + r);
    row[r + at] = row[at] + 1;
    for (int64_t i = at + 1; i < r; ++i) row[r + i] = row[r + i - 1] + step;
  }
  return reshape(index_select(x, 0, raw::to(index, x.device())), {count, r});
}

Tensor block_diag(const std::vector<Tensor>& xs) {
  const OpCall call("block_diag", "xs", xs);
  if (xs.empty()) throw ValueError("block_diag", "expected at least one matrix, got none");
  int64_t cols = 0, before = 0;
  for (const Tensor& x : xs) {
    if (x.dim() > 2) throw ShapeError("block_diag", "expected matrices, got ", describe(x));
    cols = Checked("block_diag", cols) + (x.dim() == 0 ? 1 : x.shape().back());
  }
  // One row of blocks per matrix m: [zeros, m, zeros] with `cols` columns.
  std::vector<Tensor> rows;
  for (const Tensor& x : xs) {
    const Tensor m = atleast_2d(x);
    const auto blank = [&](int64_t n) { return zeros({m.size(0), n}, {m.dtype(), m.device()}); };
    rows.push_back(cat({blank(before), m, blank(cols - before - m.size(1))}, 1));
    before += m.size(1);
  }
  return cat(rows, 0);
}

Tensor as_strided(const Tensor& x, const Shape& shape, const Strides& strides,
                  std::optional<int64_t> offset) {
  const OpCall call("as_strided", {{"x", x}});
  Tensor y = raw::as_strided(x, shape, strides, offset.value_or(x.impl().offset));
  if (Recorder r{"as_strided", x}) {
    // Maps each element of y to its row-major index in x, or to n for elements of the storage outside of x.
    const Tensor positions = raw::indices_in(x, y);
    r.record(y, wrt(x, [positions, input_size = x.shape(), n = x.numel()](const Tensor& dy) {
               const Tensor sums = index_select_backward(reshape(dy, {dy.numel()}), {n + 1}, 0, positions);
               return reshape(narrow(sums, 0, 0, n), input_size);
             }));
  }
  return y;
}

}  // namespace gradus
