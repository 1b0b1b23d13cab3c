// Kernels that sum a point-wise loss and compute its gradient in one launch, for all float dtypes
// (loss_sums_test.h).
#include "loss_sums_test.h"

namespace device_test {

void test_loss_sums() {
  test_loss_sums_in<float>("f32");
  test_loss_sums_in<double>("f64");
  test_loss_sums_in<f16>("f16");
  test_loss_sums_in<bf16>("bf16");
}

}  // namespace device_test
