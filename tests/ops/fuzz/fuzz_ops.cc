// Searches for shapes at which an op is wrong: rows of the op table with sizes at every constant
// of the kernels that run, all dtypes and layouts, 1 to 8 threads, values and gradients, against
// the rows' references. Exits with 1 if a row is wrong.
//
//   tools/fuzz-ops.sh --seconds 600
//   tools/fuzz-ops.sh --op sum --seed 7
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <random>

#include "gradus/tests/ops/fuzz/fuzz.h"

int main(int argc, char** argv) {
  using namespace gradus::optest;
  FuzzOptions options{.seconds = 60, .seed = std::random_device()()};
  bool list = false;
  CLI::App app("Searches for shapes at which an op of the op table is wrong.");
  app.add_option("--seconds", options.seconds, "how long")->capture_default_str();
  app.add_option("--cases", options.cases, "how many cases at most; 0: as many as there is time for");
  app.add_option("--seed", options.seed, "of the cases; a random one by default");
  app.add_option("--op", options.op, "this op alone");
  app.add_option("--failures", options.failures, "how many rows may be wrong before it ends")
      ->capture_default_str();
  app.add_flag("--list", list, "only list the rows, and which of their sizes may be changed");
  CLI11_PARSE(app, argc, argv);
  if (list) {
    describe_rows(std::cout);
    return 0;
  }
  std::cout << "seed " << options.seed << std::endl;
  options.failed = [](const std::string& what) { std::cout << "WRONG: " << what << std::endl; };
  const FuzzReport report = fuzz(options);
  std::printf("%lld cases in %.1f s: %lld refused by the op, %lld with gradients\n", (long long)report.cases,
              report.seconds, (long long)report.refused, (long long)report.gradients);
  return report.failures.empty() ? 0 : 1;
}
