#include "gradus/train/gan/lazy_regularization.h"

#include <cmath>

namespace gradus::gan {

optim::AdamOptions lazy_regularization(optim::AdamOptions adam, int64_t k) {
  if (k < 1) throw ValueError("lazy_regularization", "expected an interval k >= 1, got ", k);
  const double c = double(k) / double(k + 1);
  adam.lr *= c;
  for (double& beta : adam.betas) beta = std::pow(beta, c);
  return adam;
}

}  // namespace gradus::gan
