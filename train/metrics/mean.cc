#include "gradus/train/metrics/mean.h"

#include <limits>
#include <vector>

#include "gradus/distributed/group/collectives.h"

namespace gradus::metrics {

double Mean::compute() const {
  const Tensor all = tensor({sum_, double(count_)});
  dist::all_reduce(all, {.group = group_});
  const std::vector<double> n = all.to_vector<double>();
  return n[1] > 0 ? n[0] / n[1] : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace gradus::metrics
