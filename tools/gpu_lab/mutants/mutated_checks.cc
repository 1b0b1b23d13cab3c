// Runs checks of the kernels on the emulated device, with the mutant that GRADUS_MUTANT selects: the checks
// whose names contain one of the arguments, or all without arguments. Exit status 1: a result is wrong, or no
// check ran. A fault that the emulator finds aborts the program.
//
//   GRADUS_MUTANT=7 mutated_checks copy fill
#include <exception>

#include "checks.h"
#include "gradus/tests/cuda/device/device_test.h"

int main(int argc, char** argv) {
  using namespace device_test;  // NOLINT
  options().small = true;
  options().seconds = 1e9;
  try {
    for (int i = 1; i < std::max(2, argc); ++i) {
      if (argc > 1) options().only = argv[i];
      test_copies();
      mutants::test_elementwise();
      mutants::test_reductions();
      mutants::test_optim_steps();
      mutants::test_loss_sums();
      test_softmax();
      test_cross_entropy();
      test_pooling();
      test_direct_conv();
      test_random();
      test_batch_norm();
      test_layer_norm();
      test_group_norm();
      test_arrange();
      test_sort();
      test_scans();
      test_search();
      test_recurrent();
      test_gradients();
      test_index();
      test_unfold();
      test_upfirdn();
      test_attention();
    }
  } catch (const std::exception& e) {
    std::printf("FAIL  %s\n", e.what());
    return 1;
  }
  return Group::failed || Group::passed == 0;
}
