// Errors about tensor values that kernels detect, with the same text on all devices. `at` (`sample` of
// targets) is the index of an element in the row-major tensor. CPU kernels throw at once; for GPU kernels the
// host throws when it waits.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/error.h"

namespace gradus::raw {

[[noreturn]] inline void throw_invalid_index(const char* op, int64_t index, int dim, int64_t size) {
  throw IndexError(op, "index ", index, " is out of range for dim ", dim, " of size ", size);
}
[[noreturn]] inline void throw_negative_count(int64_t at, int64_t count) {
  throw ValueError("repeat_interleave", "count ", at, " is negative: ", count);
}
[[noreturn]] inline void throw_overflowing_counts() {
  throw ValueError("repeat_interleave", "the sum of the counts does not fit into 64 bits");
}
[[noreturn]] inline void throw_other_count_sum(int64_t sum, int64_t size) {
  throw ValueError("repeat_interleave", "counts add up to ", sum, ", not to the given size ", size);
}
[[noreturn]] inline void throw_small_selection(int64_t count, int64_t size) {
  throw ValueError("masked_select", "the mask has ", count, " true elements for a result of ", size);
}
[[noreturn]] inline void throw_small_source(int64_t count, int64_t source_count) {
  throw ValueError("masked_scatter", "the mask has ", count, " true elements but the source only ",
                   source_count);
}
[[noreturn]] inline void throw_infinite_range(double bound) {
  throw ValueError("histc", "expected a range of finite numbers, got the bound ", bound);
}
[[noreturn]] inline void throw_invalid_class(const char* op, int64_t target, int64_t sample,
                                             int64_t classes) {
  throw IndexError(op, "target ", target, " of sample ", sample, " is no class: there are ", classes);
}
[[noreturn]] inline void throw_invalid_probability(double p, int64_t at) {
  throw ValueError("bernoulli", "expected probabilities from 0 to 1, got ", p, " at ", at);
}
[[noreturn]] inline void throw_invalid_cross_entropy(bool is_target, double value, int64_t at) {
  throw ValueError("binary_cross_entropy", "expected ", is_target ? "target" : "x", " from 0 to 1, got ",
                   value, " at element ", at,
                   is_target ? "" : "; for scores without sigmoid use binary_cross_entropy_with_logits");
}
[[noreturn]] inline void throw_invalid_weight(double weight, int64_t at) {
  throw ValueError("multinomial", "expected finite numbers of at least 0, got ", weight, " at ", at);
}
[[noreturn]] inline void throw_invalid_total(double total) {
  throw ValueError("multinomial", "the numbers of a row add up to ", total);
}
[[noreturn]] inline void throw_too_few_weights(int64_t count, int64_t positive) {
  throw ValueError("multinomial", "cannot draw ", count, " without replacement where ", positive,
                   " numbers are above 0");
}
[[noreturn]] inline void throw_invalid_scale(double scale, int64_t skipped_steps) {
  throw StateError("GradScaler", "gradients are infinite or NaN whatever the scale, which has fallen to ",
                   scale, " after ", skipped_steps, " skipped steps: look for the NaN without it");
}

}  // namespace gradus::raw
