// Runs the example program mnist on the CPU and on cuda:0: both reach the same test accuracy. Reads MNIST
// from $GRADUS_DATA/mnist if it exists; else the program generates digits.
//
//   accuracy_test PROGRAM [ARGUMENTS...]
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradus/tests/examples/program_run.h"

namespace gradus::examples {
namespace {

TEST(Accuracy, OfMnistIsTheCpus) {
  std::vector<std::string> given = testing::internal::GetArgvs();
  ASSERT_GE(given.size(), 2u) << "which program?";
  const auto train = [&](const std::string& device) {
    const Scratch s;
    std::vector<std::string> args(given.begin() + 2, given.end());
    args.insert(args.end(), {"--device", device, "--summary", "s.json"});
    const char* const data = std::getenv("GRADUS_DATA");
    if (data && std::filesystem::is_directory(std::filesystem::path(data) / "mnist"))
      args.insert(args.end(), {"--data", (std::filesystem::absolute(data) / "mnist").string()});
    const Result r = run(given[1], s.dir(), args);
    EXPECT_EQ(r.status, 0) << r.output;
    if (r.status != 0) std::exit(1);
    return summary(s.dir() / "s.json");
  };
  const nlohmann::json here = train("cpu"), there = train("cuda");
  EXPECT_EQ(there.at("device"), "cuda:0");
  const double a = here.at("test_accuracy"), b = there.at("test_accuracy"), n = here.at("test_samples");
  std::cout << "accuracy on " << n << " images: " << a << " on the CPU, " << b << " on cuda:0\n";
  // Rounding differs, so the networks do. Each answers an image rightly with probability p. If they did so
  // independently, the difference would have this standard deviation; they agree on more.
  const double p = (a + b) / 2, deviation = std::sqrt(2 * p * (1 - p) / n);
  EXPECT_LE(std::abs(a - b), 4 * deviation);
}

}  // namespace
}  // namespace gradus::examples
