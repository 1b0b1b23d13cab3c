// Numbers of channels of growing networks, and the check of their scale.
#include "gradus/models/gan/internal/growing.h"

#include <algorithm>
#include <cmath>

#include "gradus/models/gan/internal/options.h"

namespace gradus::models::internal {

int64_t channels_at(int r, int64_t base, int64_t max, double decay) {
  return std::min(int64_t(double(base) / std::exp2(r * decay)), max);
}

void check_scale(const char* network, Scale scale, int64_t largest) {
  check_image_size(network, scale.size, 4);
  if (scale.size > largest)
    throw ValueError(network, "expected a scale of at most ", largest, " pixels, got ", scale.size);
  if (!(scale.fade >= 0 && scale.fade <= 1))
    throw ValueError(network, "expected a fade in [0,1], got ", scale.fade);
}

}  // namespace gradus::models::internal
