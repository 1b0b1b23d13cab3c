// Padded and packed sequences. Packing is an index_select of the steps of a padded batch, and its inverse an index_copy
// into padding; the indices are made on the host.
#include "gradus/nn/packed_sequence.h"

#include <algorithm>
#include <numeric>

#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/images/pad.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {
namespace {

// Errors, naming `op`: ShapeError for fewer than 2 dims; ValueError unless there is a length in [1, T] per sequence.
void check_lengths(const char* op, const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first) {
  if (x.dim() < 2)
    throw ShapeError(op, "expected x ", batch_first ? "[N,T,...]" : "[T,N,...]", ", got ", describe(x));
  const int64_t n = x.size(batch_first ? 0 : 1), steps = x.size(batch_first ? 1 : 0);
  if (int64_t(lengths.size()) != n || n == 0)
    throw ValueError(op, "expected a length for each of ", n, " sequences, and at least one, got ",
                     lengths.size());
  for (const int64_t length : lengths)
    if (length < 1 || length > steps)
      throw ValueError(op, "expected lengths in [1, ", steps, "], got ", length);
}

// Returns the positions, in a batch with its first two dims joined, of the rows of packed data: i64[sum of sizes].
Tensor positions(const PackedSequence& p, int64_t steps, bool batch_first, Device device) {
  const int64_t n = p.batch_sizes[0];
  std::vector<int64_t> index;
  for (size_t t = 0; t < p.batch_sizes.size(); ++t)
    for (int64_t i = 0; i < p.batch_sizes[t]; ++i) {
      const int64_t row = p.sorted_indices.empty() ? i : p.sorted_indices[size_t(i)];
      index.push_back(batch_first ? row * steps + int64_t(t) : int64_t(t) * n + row);
    }
  return raw::to(tensor(index), device);
}

// Returns `shape` with its first `dims` dims replaced by `first`.
Shape with_first(const Shape& shape, int dims, const Shape& first) {
  Shape s = first;
  for (int d = dims; d < shape.size(); ++d) s.push_back(shape[d]);
  return s;
}

}  // namespace

std::vector<int64_t> PackedSequence::lengths() const {
  Checked total("PackedSequence", 0);
  for (size_t t = 0; t < batch_sizes.size(); ++t) {
    if (batch_sizes[t] < 1 || (t > 0 && batch_sizes[t] > batch_sizes[t - 1]))
      throw ValueError("PackedSequence", "expected positive batch_sizes that do not increase, got ",
                       batch_sizes[t], " for step ", t);
    total = total + batch_sizes[t];
  }
  if (batch_sizes.empty() || !data.defined() || data.dim() < 1 || data.size(0) != total)
    throw ValueError("PackedSequence", "expected data of ", int64_t(total),
                     " rows, the sum of batch_sizes, got ", describe(data));
  const size_t n = size_t(batch_sizes[0]);
  std::vector<int64_t> order = sorted_indices, identity(n);
  std::sort(order.begin(), order.end());
  std::iota(identity.begin(), identity.end(), 0);
  if (!order.empty() && order != identity)
    throw ValueError("PackedSequence", "expected sorted_indices that are a permutation of ", n, " numbers");
  std::vector<int64_t> lengths(n, 0);
  for (const int64_t size : batch_sizes)
    for (size_t i = 0; i < size_t(size); ++i)
      ++lengths[sorted_indices.empty() ? i : size_t(sorted_indices[i])];
  return lengths;
}

PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths,
                                    const PackOptions& o) {
  check_lengths("pack_padded_sequence", x, lengths, o.batch_first);
  PackedSequence p;
  if (!o.enforce_sorted) {
    p.sorted_indices.resize(lengths.size());
    std::iota(p.sorted_indices.begin(), p.sorted_indices.end(), 0);
    std::stable_sort(p.sorted_indices.begin(), p.sorted_indices.end(),
                     [&](int64_t a, int64_t b) { return lengths[size_t(a)] > lengths[size_t(b)]; });
  } else if (!std::is_sorted(lengths.rbegin(), lengths.rend())) {
    throw ValueError("pack_padded_sequence",
                     "expected lengths in descending order; enforce_sorted = false sorts the sequences");
  }
  p.batch_sizes.resize(size_t(*std::max_element(lengths.begin(), lengths.end())));
  for (size_t t = 0; t < p.batch_sizes.size(); ++t)
    p.batch_sizes[t] =
        std::count_if(lengths.begin(), lengths.end(), [&](int64_t length) { return length > int64_t(t); });
  const Tensor rows = reshape(x, with_first(x.shape(), 2, {x.size(0) * x.size(1)}));
  p.data = index_select(rows, 0, positions(p, x.size(o.batch_first ? 1 : 0), o.batch_first, x.device()));
  return p;
}

PaddedSequence pad_packed_sequence(const PackedSequence& p, const PadPackedOptions& o) {
  const std::vector<int64_t> lengths = p.lengths();
  const int64_t n = p.batch_sizes[0], longest = int64_t(p.batch_sizes.size()),
                steps = o.total_length.value_or(longest);
  if (steps < longest)
    throw ValueError("pad_packed_sequence", "expected a total_length of at least ", longest, ", got ", steps);
  const Shape rows = with_first(p.data.shape(), 1, {Checked("pad_packed_sequence", steps) * n});
  const Tensor padding = full(rows, o.padding_value, {.dtype = p.data.dtype(), .device = p.data.device()});
  const Tensor y = index_copy(padding, 0, positions(p, steps, o.batch_first, p.data.device()), p.data);
  return {reshape(y, with_first(p.data.shape(), 1, o.batch_first ? Shape{n, steps} : Shape{steps, n})),
          lengths};
}

Tensor pad_sequence(const std::vector<Tensor>& sequences, const PadSequenceOptions& o) {
  if (sequences.empty()) throw ValueError("pad_sequence", "expected at least one sequence");
  int64_t steps = 0;
  for (const Tensor& s : sequences) {
    if (!s.defined() || s.dim() < 1)
      throw ShapeError("pad_sequence", "expected sequences [T,...], got ", describe(s));
    steps = std::max(steps, s.size(0));
  }
  std::vector<Tensor> padded;
  for (const Tensor& s : sequences) {
    std::vector<int64_t> pads(size_t(2 * s.dim()), 0);  // those of dim 0 are the last
    pads[pads.size() - (o.padding_side == PaddingSide::kLeft ? 2 : 1)] = steps - s.size(0);
    padded.push_back(pad(s, pads, {.value = o.padding_value}));
  }
  return stack(padded, o.batch_first ? 0 : 1);
}

std::vector<Tensor> unpad_sequence(const Tensor& x, const std::vector<int64_t>& lengths, bool batch_first) {
  check_lengths("unpad_sequence", x, lengths, batch_first);
  std::vector<Tensor> sequences;
  for (size_t n = 0; n < lengths.size(); ++n)
    sequences.push_back(narrow(select(x, batch_first ? 0 : 1, int64_t(n)), 0, 0, lengths[n]));
  return sequences;
}

PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted) {
  const Tensor padded = pad_sequence(sequences);
  std::vector<int64_t> lengths;
  for (const Tensor& s : sequences) lengths.push_back(s.size(0));
  return pack_padded_sequence(padded, lengths, {.enforce_sorted = enforce_sorted});
}

std::vector<Tensor> unpack_sequence(const PackedSequence& packed) {
  const PaddedSequence p = pad_packed_sequence(packed);
  return unpad_sequence(p.padded, p.lengths);
}

}  // namespace gradus::nn
