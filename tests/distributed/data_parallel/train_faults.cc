// Kills ranks of the training of a PGGAN, many times over: at any moment, in fades, where the networks grow, and
// at the moments in which a checkpoint is written or replaces the one before. The job must recover by itself from
// its last checkpoint and end well. Every sample counts once in its epoch. The weights equal those of an
// undisturbed run, bit by bit. Then a job that is killed for good continues with another number of ranks.
//
//   tools/train-faults.sh                            50 repetitions, on digits that the program draws
//   tools/train-faults.sh --data DIR --seed 7        on images
#include "gradus/tests/distributed/data_parallel/train_faults.h"

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <iostream>

using namespace gradus;
using namespace gradus::dist;
namespace fs = std::filesystem;

int main(int argc, char** argv) {
  FaultsOptions options;
  CLI::App app{"Kills ranks of a training, also while they write checkpoints, many times over"};
  app.add_option("--repetitions", options.repetitions,
                 "jobs that restart by themselves, and as many that are resumed")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_option("--seed", options.seed, "of the first repetition; the next one's is one more")
      ->capture_default_str();
  app.add_option("--data", options.data, "folder with images [digits it draws]")->type_name("DIR");
  app.add_option("--executable", options.executable, "of the program gan [its own]")->type_name("FILE");
  CLI11_PARSE(app, argc, argv);
  if (!options.data.empty()) options.data = fs::absolute(options.data).string();
  if (options.executable.empty())
    options.executable =
        (fs::read_symlink("/proc/self/exe").parent_path() / "../../../examples/gan").string();
  options.executable = fs::absolute(options.executable).lexically_normal().string();
  try {
    return run_gan_faults(options);
  } catch (const std::exception& e) {
    std::cerr << e.what() << std::endl;
    return 2;
  }
}
