#include "gradus/examples/support/tally.h"

#include <cmath>

#include "gradus/distributed/group/collectives.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::examples {

Sums& Sums::operator+=(const Sums& s) {
  loss += s.loss;
  correct += s.correct;
  seen += s.seen;
  correct_in_5 += s.correct_in_5;
  return *this;
}

Sums Tally::reduce() {
  // f64 holds counts exactly.
  const Tensor x =
      tensor({mine_.loss, double(mine_.correct), double(mine_.seen), double(mine_.correct_in_5)});
  dist::all_reduce(x);
  const double* sum = x.data<double>();
  const Sums recent{sum[0], int64_t(sum[1]), int64_t(sum[2]), int64_t(sum[3])};
  mine_ = {};
  total_ += recent;
  return recent;
}

int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k, int64_t rows) {
  const Tensor values = raw::contiguous(raw::to(logits, DType::kF32));
  const float* x = values.data<float>();
  const int64_t* y = target.data<int64_t>();
  const int64_t classes = logits.size(1);
  if (rows < 0) rows = logits.size(0);
  int64_t correct = 0;
  for (int64_t i = 0; i < rows; ++i, x += classes) {
    // The target's place: how many come before it.
    const float at_target = x[y[i]];
    int64_t before = 0;
    for (int64_t c = 0; c < classes; ++c)
      before += x[c] > at_target || (x[c] == at_target && c < y[i]) || (std::isnan(x[c]) && c != y[i]);
    correct += before < k && !std::isnan(at_target);
  }
  return correct;
}

Sums score(const Tensor& losses, const Tensor& logits, const data::Batch& b) {
  const int64_t rows = b.size() - b.padding;
  const Tensor values = raw::contiguous(raw::to(losses, DType::kF32));
  Sums sums{.seen = rows};
  for (int64_t i = 0; i < rows; ++i) sums.loss += double(values.data<float>()[i]);
  sums.correct = count_correct(logits, b.target, 1, rows);
  sums.correct_in_5 = count_correct(logits, b.target, 5, rows);
  return sums;
}

}  // namespace gradus::examples
