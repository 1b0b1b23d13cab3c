// x[{...}]: numbers, slices, None and Ellipsis make a view; index tensors and masks then read (index) or
// write (index_put) elements of that view. An assignment writes in place, unless an open recording follows x
// or v: in that case it computes a new tensor and makes the indexed handle refer to that tensor.
#include "gradus/autograd/indexing.h"

#include <algorithm>

#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using Kind = Index::Kind;

// Returns how many dims of x the index consumes.
int dims_taken(const Index& index) {
  if (index.is(Kind::kNone) || index.is(Kind::kEllipsis)) return 0;
  const Tensor& mask = index.tensor();
  return mask.defined() && mask.dtype() == DType::kBool ? mask.dim() : 1;
}

// The elements that an index list selects.
struct Part {
  Tensor view;  // x after numbers, slices, None and Ellipsis
  // Per dim of the view, the tensor that indexes the dim, or undefined; a mask is one entry for all its dims.
  // Empty if no index is a tensor.
  std::vector<Tensor> tensors;
  bool whole = true;  // the view is x itself
};

// Applies the indices from left to right. A number, slice or None changes the view, at dim d; an index tensor
// is only stored. Dims without an index at the end are whole.
Part part_of(const Tensor& x, const std::vector<Index>& index) {
  int taken = 0, ellipses = 0;
  for (const Index& i : index) taken += dims_taken(i), ellipses += i.is(Kind::kEllipsis);
  if (ellipses > 1) throw IndexError("index", "more than one Ellipsis: x ", describe(x));
  if (taken > x.dim())
    throw IndexError("index", "indices for ", taken, " dims but x has ", x.dim(), ": x ", describe(x));
  Part part{x, {}, true};
  int d = 0;
  bool any_tensor = false;
  const auto replace = [&](Tensor view) { part.view = std::move(view), part.whole = false; };
  const auto pass = [&](int dims) { d += dims, part.tensors.resize(part.tensors.size() + dims); };
  for (const Index& i : index) {
    switch (i.kind()) {
      case Kind::kNumber:
        replace(select(part.view, d, i.number()));
        break;
      case Kind::kSlice:
        if (!i.slice().is_whole())
          replace(slice(part.view, d, i.slice().start, i.slice().stop, i.slice().step));
        pass(1);
        break;
      case Kind::kNone:
        replace(unsqueeze(part.view, d));
        pass(1);
        break;
      case Kind::kEllipsis:
        pass(x.dim() - taken);
        break;
      case Kind::kTensor:
        part.tensors.push_back(i.tensor());
        d += dims_taken(i);
        any_tensor = true;
        break;
    }
  }
  if (!any_tensor) part.tensors.clear();
  return part;
}

// Returns v without the leading dims beyond `dims` if they have size 1, else v itself.
Tensor drop_leading_ones(const Tensor& v, int dims) {
  if (v.dim() <= dims) return v;
  Shape s;
  for (int i = 0; i < v.dim(); ++i) {
    if (i >= v.dim() - dims)
      s.push_back(v.shape()[i]);
    else if (v.shape()[i] != 1)
      return v;
  }
  return reshape(v, s);
}

// Returns a copy of x in which the indexed elements are v, with gradients to x and v. With index tensors,
// first computes the new view by index_put and then assigns the view.
Tensor assigned(const Tensor& x, const std::vector<Index>& index, const Tensor& v) {
  const Part part = part_of(x, index);
  if (!part.tensors.empty()) {
    const Tensor inner = index_put(part.view, part.tensors, v);
    if (part.whole) return inner;
    std::vector<Index> basic;  // `index` with whole dims in place of tensors
    for (const Index& i : index) {
      if (i.is(Kind::kTensor))
        basic.insert(basic.end(), dims_taken(i), Slice());
      else
        basic.push_back(i);
    }
    return assigned(x, basic, inner);
  }
  const Tensor src = drop_leading_ones(v, part.view.dim());
  Tensor y = raw::clone(x);
  raw::copy_(part_of(y, index).view, src);
  if (Recorder r{"index_assign", x, src})
    r.record(y,
             wrt(x,
                 [index](const Tensor& dy) {
                   return assigned(dy, index, scalar(0, {dy.dtype(), dy.device()}));
                 }),
             wrt(src, [index](const Tensor& dy) { return part_of(dy, index).view; }));
  return y;
}

}  // namespace

// Without any selection, returns a new view, so that the result is never the tensor x itself.
Tensor Indexed::get() const {
  const Part part = part_of(x_, index_);
  if (!part.tensors.empty()) return index(part.view, part.tensors);
  return part.whole ? view(x_, x_.shape()) : part.view;
}

Indexed::Indexed(const Tensor& x, Tensor* handle, std::vector<Index> index)
    : x_(x), handle_(handle), index_(std::move(index)) {}
Indexed::Indexed(std::shared_ptr<Indexed> outer, std::vector<Index> index)
    : x_(outer->get()), handle_(nullptr), index_(std::move(index)), outer_(std::move(outer)) {}
Indexed::~Indexed() = default;

bool Indexed::is_copy() const {
  return std::ranges::any_of(index_, [](const Index& i) { return i.is(Kind::kTensor); }) ||
         (outer_ && outer_->is_copy());
}

void Indexed::assign(const Tensor& v) {
  if (outer_) {
    std::move(*outer_) = v;
  } else if (handle_) {
    *handle_ = v;
  } else {
    throw StateError(
        "index",
        "under a recording, assigning to a part makes a new tensor, which neither a const handle "
        "nor a parameter can take: x ",
        describe(x_), "; write under `const auto off = no_record();`, or into clone(x)");
  }
}

void Indexed::operator=(const Tensor& v) && {
  autograd::check_same_device("index", "x", x_, "the value", v);
  if (autograd::is_tracked(x_) || autograd::is_tracked(v)) {
    autograd::check_not_leaf("index", x_);
    return assign(assigned(x_, index_, v));
  }
  // No recording follows x or v, so the views and index_put below record nothing.
  const Part part = part_of(x_, index_);
  const Tensor src = v.storage() == x_.storage() ? raw::clone(v) : v;
  raw::copy_(part.view, part.tensors.empty() ? drop_leading_ones(src, part.view.dim())
                                             : index_put(part.view, part.tensors, src));
  if (outer_ && outer_->is_copy()) assign(x_);  // x_ is a copy: writes it back to the tensor it was read from
}

void Indexed::operator=(Number v) && {
  check_fits("index", v, x_.dtype());
  std::move(*this) = scalar(v, {x_.dtype(), x_.device()});
}
void Indexed::operator+=(const Tensor& v) && { std::move(*this) = get() + v; }
void Indexed::operator-=(const Tensor& v) && { std::move(*this) = get() - v; }
void Indexed::operator*=(const Tensor& v) && { std::move(*this) = get() * v; }
void Indexed::operator/=(const Tensor& v) && { std::move(*this) = get() / v; }
void Indexed::operator+=(Number v) && { std::move(*this) = get() + v; }
void Indexed::operator-=(Number v) && { std::move(*this) = get() - v; }
void Indexed::operator*=(Number v) && { std::move(*this) = get() * v; }
void Indexed::operator/=(Number v) && { std::move(*this) = get() / v; }

Indexed Indexed::operator[](std::initializer_list<Index> index) && {
  auto whole = std::make_shared<Indexed>(x_, handle_, std::move(index_));
  whole->outer_ = std::move(outer_);
  return {std::move(whole), index};
}
Indexed Indexed::operator[](const Index& index) && { return std::move(*this)[{index}]; }
Indexed Indexed::operator[](std::initializer_list<Index> index) const& { return {get(), nullptr, index}; }
Indexed Indexed::operator[](const Index& index) const& { return {get(), nullptr, {index}}; }

Indexed Tensor::operator[](std::initializer_list<Index> index) & { return {*this, this, index}; }
Indexed Tensor::operator[](std::initializer_list<Index> index) const& { return {*this, nullptr, index}; }
Indexed Tensor::operator[](const Index& index) & { return {*this, this, {index}}; }
Indexed Tensor::operator[](const Index& index) const& { return {*this, nullptr, {index}}; }

}  // namespace gradus
