// einsum: parses the equation, then multiplies the operands from left to right, each pair as one batched
// matmul after permutes and reshapes. A label that neither the result nor a later operand needs is summed
// over as soon as possible. The gradient is that of the ops used, so this file records no node. Under
// autocast, operands are cast first.
#include "gradus/autograd/ops/linalg/einsum.h"

#include <algorithm>
#include <map>
#include <string>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/autograd/ops/reduce.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

constexpr const char* kOp = "einsum";

// One label per dim: a letter, or for the dims of "..." '0', '1', ..., counted from the last dim, so that
// equal labels broadcast against each other. Before expanded(), kEllipsis stands for all dims of "...".
using Labels = std::string;
constexpr char kEllipsis = '.';

struct Operand {
  Tensor x;
  Labels labels;  // one per dim of x
};

bool has(const Labels& labels, char label) { return labels.find(label) != Labels::npos; }

// The terms of an equation, without spaces and with kEllipsis for "...".
struct Equation {
  explicit Equation(std::string_view equation) : text(equation) {
    std::string s;
    for (char c : equation)
      if (c != ' ') s += c;
    const size_t arrow = s.find("->");
    has_result = arrow != std::string::npos;
    if (has_result) result = term(s.substr(arrow + 2));
    const std::string left = s.substr(0, arrow);
    for (size_t at = 0;;) {
      const size_t comma = left.find(',', at);
      inputs.push_back(term(left.substr(at, comma - at)));
      if (comma == std::string::npos) break;
      at = comma + 1;
    }
  }

  // For errors: ` in "ij,jk"`.
  std::string in_text() const { return concat(" in \"", text, '"'); }

  // Returns the labels of one term, such as "b...ij" without spaces.
  // Errors: ValueError for any other character.
  Labels term(const std::string& s) const {
    Labels labels;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] == '.') {
        if (s.compare(i, 3, "...") != 0 || has(labels, kEllipsis))
          throw ValueError(kOp, "dots that are no \"...\" in \"", text, '"');
        labels += kEllipsis;
        i += 2;
      } else if ((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z')) {
        labels += s[i];
      } else {
        throw ValueError(kOp, "unexpected '", s[i], "' in \"", text, '"');
      }
    }
    return labels;
  }

  std::string text;
  std::vector<Labels> inputs;
  Labels result;
  bool has_result = false;
};

// Replaces kEllipsis by the labels of `count` dims.
Labels expanded(Labels labels, int count) {
  const size_t at = labels.find(kEllipsis);
  if (at == Labels::npos) return labels;
  Labels dims;
  for (int i = count - 1; i >= 0; --i) dims += char('0' + i);
  return labels.replace(at, 1, dims);
}

// Replaces two dims with the same label by their diagonal: moves both to the end, flattens [n, n] to [n * n],
// and takes every (n + 1)th element.
void take_diagonals(Operand& o, std::string_view equation) {
  for (size_t i = 0; i < o.labels.size(); ++i) {
    for (size_t j = o.labels.find(o.labels[i], i + 1); j != Labels::npos;
         j = o.labels.find(o.labels[i], i + 1)) {
      const int64_t n = o.x.size(int64_t(i));
      if (o.x.size(int64_t(j)) != n)
        throw ShapeError(kOp, "sizes ", n, " and ", o.x.size(int64_t(j)), " of one letter: ", describe(o.x),
                         " in \"", equation, '"');
      Tensor x = movedim(movedim(o.x, int64_t(i), -1), int64_t(j) - 1, -1);
      Shape shape = x.shape();
      shape.erase(shape.size() - 1);
      shape[shape.size() - 1] = n * n;
      o.x = movedim(slice(reshape(x, shape), -1, 0, n * n, n + 1), -1, int64_t(i));
      o.labels.erase(j, 1);
    }
  }
}

// Sums over the dims whose labels are not in `kept`.
void sum_except(Operand& o, const Labels& kept) {
  Dims dims;
  Labels left;
  for (size_t d = 0; d < o.labels.size(); ++d)
    if (has(kept, o.labels[d]))
      left += o.labels[d];
    else
      dims.push_back(int64_t(d));
  if (!dims.empty()) o = {sum(o.x, dims), left};
}

// Returns x with its dims in the order of `labels`, which contains each label of the operand once.
Tensor ordered(const Operand& o, const Labels& labels) {
  if (o.labels == labels) return o.x;
  Dims order;
  for (char l : labels) order.push_back(int64_t(o.labels.find(l)));
  return permute(o.x, order);
}

// Returns the product of the sizes of these dims.
int64_t size_of(const Operand& o, const Labels& labels) {
  int64_t n = 1;
  for (char l : labels) n *= o.x.size(int64_t(o.labels.find(l)));
  return n;
}

// Returns the product of two operands, summed over the labels that are not in `kept`. Sizes of equal labels
// are equal.
Operand product(Operand a, Operand b, const Labels& kept) {
  sum_except(a, kept + b.labels);
  sum_except(b, kept + a.labels);
  Labels batch, left, right, summed;
  for (char l : a.labels) (has(b.labels, l) ? (has(kept, l) ? batch : summed) : left) += l;
  for (char l : b.labels)
    if (!has(a.labels, l)) right += l;
  Operand y{{}, batch + left + right};
  if (y.labels.size() > size_t(kMaxDims))
    throw ShapeError(kOp, "a product of ", y.labels.size(), " dimensions: ", describe(a.x), " and ",
                     describe(b.x));
  Shape shape_batch, shape;
  for (char l : batch) shape_batch.push_back(size_of(a, {l}));
  shape = shape_batch;
  for (char l : left) shape.push_back(size_of(a, {l}));
  for (char l : right) shape.push_back(size_of(b, {l}));
  // Multiplies matrices [left,summed] and [summed,right] for each batch index. Without a label to sum over,
  // multiplies element-wise with broadcasting.
  const auto matrices = [&](const Operand& o, const Labels& rows, const Labels& columns) {
    Shape s = shape_batch;
    s.push_back(size_of(o, rows)), s.push_back(size_of(o, columns));
    return reshape(ordered(o, batch + rows + columns), s);
  };
  if (batch.size() + 2 > size_t(kMaxDims))
    throw ShapeError(kOp, "a batch of ", batch.size(), " dimensions: ", describe(a.x), " and ",
                     describe(b.x));
  const Tensor x = matrices(a, left, summed), z = matrices(b, summed, right);
  y.x = reshape(summed.empty() ? x * z : matmul(x, z), shape);
  return y;
}

// Returns the operands with their labels, and the largest number of dims that "..." stands for.
std::pair<std::vector<Operand>, int> labeled(const Equation& equation, const std::vector<Tensor>& operands) {
  if (operands.size() != equation.inputs.size())
    throw ValueError(kOp, operands.size(), " operands for ", equation.inputs.size(), " terms",
                     equation.in_text());
  int ellipsis = 0;
  std::vector<Operand> all;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Tensor& x = operands[i];
    const Labels& term = equation.inputs[i];
    if (!are_compatible_devices(x.device(), operands[0].device()))
      throw DeviceError(kOp, "operands on different devices: ", describe(operands[0]), " and ", describe(x),
                        equation.in_text());
    if (x.dtype() != operands[0].dtype() || !is_floating(x.dtype()))
      throw DTypeError(kOp, "expected one floating dtype: ", describe(operands[0]), " and ", describe(x),
                       equation.in_text());
    const bool open = has(term, kEllipsis);
    const int letters = int(term.size()) - open;
    if (open ? x.dim() < letters : x.dim() != letters)
      throw ShapeError(kOp, "operand ", i, " has ", x.dim(), " dimensions for ", letters,
                       " letters: ", describe(x), equation.in_text());
    ellipsis = std::max(ellipsis, open ? x.dim() - letters : 0);
    all.push_back({x, expanded(term, x.dim() - letters)});
  }
  return {std::move(all), ellipsis};
}

// Returns the size of each label: the largest size of its dims, of which the others must be 1.
std::map<char, int64_t> sizes_of(const std::vector<Operand>& operands, const Equation& equation) {
  std::map<char, int64_t> sizes;
  for (const Operand& o : operands)
    for (size_t d = 0; d < o.labels.size(); ++d) {
      const char label = o.labels[d];
      const int64_t n = o.x.size(int64_t(d));
      int64_t& size = sizes.try_emplace(label, 1).first->second;
      if (n == size || n == 1) continue;
      if (size != 1)
        throw ShapeError(kOp, "sizes ", size, " and ", n, " of ",
                         label < 'A' ? std::string("\"...\"") : concat('\'', label, '\''), ": ",
                         describe(o.x), equation.in_text());
      size = n;
    }
  return sizes;
}

// Returns the labels of the result: the given ones, or those of "..." and the letters that occur once.
Labels result_labels(const std::vector<Operand>& operands, const Equation& equation, int ellipsis) {
  std::map<char, int> occurrences;
  for (const Operand& o : operands)
    for (char label : o.labels) ++occurrences[label];
  if (!equation.has_result) {
    Labels result = expanded(Labels(1, kEllipsis), ellipsis);
    for (const auto& [label, count] : occurrences)
      if (label >= 'A' && count == 1) result += label;
    return result;
  }
  const Labels result = expanded(equation.result, ellipsis);
  for (char l : result) {
    if (!occurrences.count(l))
      throw ValueError(kOp, '\'', l, "' of the result is in no operand", equation.in_text());
    if (std::count(result.begin(), result.end(), l) > 1)
      throw ValueError(kOp, '\'', l, "' is twice in the result", equation.in_text());
  }
  return result;
}

}  // namespace

Tensor einsum(std::string_view text, const std::vector<Tensor>& operands) {
  const OpCall call("einsum", "operands", operands);
  if (autograd::Casting cast{"einsum"}) return einsum(text, cast(operands));
  const Equation equation(text);
  auto [all, ellipsis] = labeled(equation, operands);
  std::map<char, int64_t> sizes = sizes_of(all, equation);
  const Labels result = result_labels(all, equation, ellipsis);
  for (Operand& o : all) {
    take_diagonals(o, text);
    // Removes a dim of size 1 whose label has a larger size in another operand: without the dim the operand
    // broadcasts.
    for (size_t d = o.labels.size(); d-- > 0;)
      if (o.x.size(int64_t(d)) == 1 && sizes[o.labels[d]] != 1)
        o.x = squeeze(o.x, int64_t(d)), o.labels.erase(d, 1);
  }
  Operand y = all[0];
  for (size_t i = 1; i < all.size(); ++i) {
    Labels kept = result;
    for (size_t later = i + 1; later < all.size(); ++later) kept += all[later].labels;
    y = product(y, all[i], kept);
  }
  sum_except(y, result);
  return ordered(y, result);
}

}  // namespace gradus
