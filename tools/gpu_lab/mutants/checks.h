// Checks of mutated_checks: each compares kernels with results of the host, for few types and for layouts
// that together take every path of the kernels. They print and count failures (device_test::Group).
#pragma once

namespace mutants {

void test_elementwise();
void test_reductions();
void test_optim_steps();
void test_loss_sums();

}  // namespace mutants
