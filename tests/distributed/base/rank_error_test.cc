// The error file that a failing rank writes for its launcher, in torchrun's JSON format.
#include "gradus/distributed/base/rank_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gradus/tensor/base/error.h"

namespace gradus::dist {
namespace {

// The content of the file of a rank that ends with this error.
std::string error_file(const std::exception_ptr& error) {
  const std::string path = testing::TempDir() + "/error.json";
  std::remove(path.c_str());
  unsetenv("GRADUS_ERROR_FILE");
  EXPECT_EQ(setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1), 0);
  write_error_file(error);
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ErrorFile, HasTheTimeAsAWholeNumberWhichTorchrunParses) {
  const std::time_t before = std::time(nullptr);
  const auto file = nlohmann::json::parse(error_file(std::make_exception_ptr(ValueError("loop", "no luck"))));
  const auto& message = file.at("message");
  EXPECT_EQ(message.at("message"), "ValueError: [loop] no luck");
  const std::string time = message.at("extraInfo").at("timestamp");
  EXPECT_THAT(time, testing::MatchesRegex("[0-9]+"));
  EXPECT_GE(std::stoll(time), before);
  EXPECT_LE(std::stoll(time), std::time(nullptr) + 1);  // std::time is up to a tick of the kernel behind
}

TEST(ErrorFile, HasTheRankAtFaultOfADistributedError) {
  const auto rank = [](const std::string& file) { return parse_error_file(file).value().rank_at_fault; };
  EXPECT_EQ(rank(error_file(std::make_exception_ptr(PeerError("recv", 2, "rank 2 died")))), 2);
  EXPECT_EQ(rank(error_file(std::make_exception_ptr(ValueError("loop", "no luck")))), std::nullopt);
  EXPECT_EQ(rank(R"({"message": {"message": "x", "extraInfo": {"rank": "2"}}})"), std::nullopt);
}

}  // namespace
}  // namespace gradus::dist
