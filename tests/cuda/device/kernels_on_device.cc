// Compares Gradus's CUDA kernels with host results and measures their times. Prints a line per group and
// finally "N passed, N failed"; exits with 0, 1 if a group failed, 3 if it runs 8 s longer than --seconds.
//
//   kernels_on_device [--small] [--seconds N] [--only TEXT] [--no-times]
//
// --small skips large shapes and dtypes that share a template with a tested one. After N seconds (50)
// remaining groups are skipped. --only runs groups whose names contain TEXT. --no-times measures no times.
#include <unistd.h>

#include <exception>
#include <thread>

#include "device_test.h"

int main(int argc, char** argv) {
  using namespace device_test;  // NOLINT
  bool times = true;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--small") options().small = true;
    if (arg == "--no-times") times = false;
    if (arg == "--seconds" && i + 1 < argc) options().seconds = std::atof(argv[++i]);
    if (arg == "--only" && i + 1 < argc) options().only = argv[++i];
  }
  elapsed();  // starts the clock
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::duration<double>(options().seconds + 8));
    std::printf("FAIL  the program takes too long: it ends here\n%d passed, %d failed\n",
                Group::passed.load(), Group::failed.load() + 1);
    std::fflush(stdout);
    _exit(3);
  }).detach();
  try {
    cudaDeviceProp p;
    MUST(cudaGetDeviceProperties(&p, 0));
    int driver = 0;
    MUST(cudaDriverGetVersion(&driver));
    std::printf("device %s, sm_%d%d, driver for CUDA %d.%d, runtime %d.%d\n", p.name, p.major, p.minor,
                driver / 1000, driver / 10 % 100, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    std::fflush(stdout);
    test_elementwise_floats();
    test_elementwise_integers();
    test_copies();
    test_reductions();
    test_loss_sums();
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
    test_optim_steps();
    if (times) time_kernels();
  } catch (const std::exception& e) {
    ++Group::failed;
    std::printf("FAIL  %s\n", e.what());
  }
  if (Group::left_out) std::printf("%d groups left out: no time\n", Group::left_out.load());
  std::printf("%d passed, %d failed\n", Group::passed.load(), Group::failed.load());
  std::fflush(stdout);
  _exit(Group::failed ? 1 : 0);  // the driver's exit handlers may hang
}
