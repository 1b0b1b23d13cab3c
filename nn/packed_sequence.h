// Batches of sequences of different lengths, as in torch.nn.utils.rnn: padded to one length, or packed without padding
// for RNN, LSTM and GRU. All functions are differentiable.
//
//   nn::PackedSequence packed = nn::pack_padded_sequence(x, lengths, {.enforce_sorted = false});
//   auto [y, state] = lstm(packed);
//   auto [padded, same_lengths] = nn::pad_packed_sequence(y);
#pragma once

#include <optional>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::nn {

// Sequences in descending order of length, one time step after another.
struct PackedSequence {
  Tensor data;  // [sum of lengths,...]: step 0 of all sequences, then step 1 of those that have it
  std::vector<int64_t> batch_sizes;  // number of sequences with step t: positive, not increasing
  // The caller's number of each sequence; empty: as in `data`.
  std::vector<int64_t> sorted_indices = {};

  // Returns the length of each sequence, in the caller's order.
  // Errors: ValueError unless the members fit together.
  std::vector<int64_t> lengths() const;
};

struct PackOptions {
  bool batch_first = false;
  bool enforce_sorted = true;  // the lengths must not increase; false: sorts the sequences
};
// Packs x [T,N,...], with batch_first [N,T,...], of which sequence n has lengths[n] steps.
// Errors: ShapeError for fewer than 2 dims; ValueError for another number of lengths, a length outside of [1, T], or
// with enforce_sorted one that is larger than the one before.
PackedSequence pack_padded_sequence(const Tensor& x, const std::vector<int64_t>& lengths,
                                    const PackOptions& options = {});

struct PadPackedOptions {
  bool batch_first = false;
  double padding_value = 0;
  std::optional<int64_t> total_length = {};  // T of the result; by default the largest length
};
struct PaddedSequence {
  Tensor padded;  // [T,N,...], with batch_first [N,T,...]
  std::vector<int64_t> lengths;
};
// Inverse of pack_padded_sequence, in the caller's order.
// Errors: ValueError for a total_length below the largest length, or members that do not fit together.
PaddedSequence pad_packed_sequence(const PackedSequence& packed, const PadPackedOptions& options = {});

enum class PaddingSide { kRight, kLeft };
struct PadSequenceOptions {
  bool batch_first = false;
  double padding_value = 0;
  PaddingSide padding_side = PaddingSide::kRight;
};
// Stacks sequences [T_n,...] padded to the longest: [T,N,...], with batch_first [N,T,...].
// Errors: ValueError for no sequences; ShapeError for sequences that differ in more than T_n.
Tensor pad_sequence(const std::vector<Tensor>& sequences, const PadSequenceOptions& options = {});
// Returns the first lengths[n] steps of each sequence n of x [T,N,...], with batch_first [N,T,...].
// Errors: as pack_padded_sequence.
std::vector<Tensor> unpad_sequence(const Tensor& x, const std::vector<int64_t>& lengths,
                                   bool batch_first = false);

// pack_padded_sequence of pad_sequence, and its inverse.
PackedSequence pack_sequence(const std::vector<Tensor>& sequences, bool enforce_sorted = true);
std::vector<Tensor> unpack_sequence(const PackedSequence& packed);

}  // namespace gradus::nn
