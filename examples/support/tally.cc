#include "gradus/examples/support/tally.h"

#include <algorithm>
#include <vector>

#include "gradus/distributed/collectives.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::examples {

Sums Tally::reduce() {
  // f64 holds counts exactly.
  const Tensor x = tensor({mine_.loss, double(mine_.correct), double(mine_.seen)});
  dist::all_reduce(x);
  const double* sum = x.data<double>();
  const Sums recent{sum[0], int64_t(sum[1]), int64_t(sum[2])};
  mine_ = {};
  total_ += recent;
  return recent;
}

int64_t count_correct(const Tensor& logits, const Tensor& target) {
  const float* x = logits.data<float>();
  const int64_t* y = target.data<int64_t>();
  const int64_t classes = logits.size(1);
  int64_t correct = 0;
  for (int64_t i = 0; i < logits.size(0); ++i)
    correct += std::max_element(x + i * classes, x + (i + 1) * classes) - (x + i * classes) == y[i];
  return correct;
}

}  // namespace gradus::examples
