// Kernels against host results: few types, layouts that take each path.
#pragma once

namespace mutants {

void test_elementwise();
void test_reductions();
void test_optim_steps();
void test_loss_sums();

}  // namespace mutants
