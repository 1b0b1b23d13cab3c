// The error file that a rank leaves for its launcher.
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

TEST(ErrorFile, HasTheTimeAsAWholeNumberWhichTorchrunParses) {
  const std::string path = testing::TempDir() + "/error.json";
  std::remove(path.c_str());
  unsetenv("GRADUS_ERROR_FILE");
  ASSERT_EQ(setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1), 0);
  const std::time_t before = std::time(nullptr);
  write_error_file(std::make_exception_ptr(ValueError("loop", "no luck")));
  const nlohmann::json file = nlohmann::json::parse(std::ifstream(path));
  const auto& message = file.at("message");
  EXPECT_EQ(message.at("message"), "ValueError: [loop] no luck");
  const std::string time = message.at("extraInfo").at("timestamp");
  EXPECT_THAT(time, testing::MatchesRegex("[0-9]+"));
  EXPECT_GE(std::stoll(time), before);
  EXPECT_LE(std::stoll(time), std::time(nullptr));
}

TEST(ErrorFile, HasTheRankAtFaultOfADistributedError) {
  const std::string path = testing::TempDir() + "/error_of_peer.json";
  unsetenv("GRADUS_ERROR_FILE");
  ASSERT_EQ(setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1), 0);
  const auto parsed = [&](const std::exception_ptr& error) {
    std::remove(path.c_str());
    write_error_file(error);
    std::ifstream file(path);
    return parse_error_file(std::string(std::istreambuf_iterator<char>(file), {})).value();
  };
  EXPECT_EQ(parsed(std::make_exception_ptr(PeerError("recv", 2, "rank 2 died"))).rank_at_fault, 2);
  EXPECT_EQ(parsed(std::make_exception_ptr(ValueError("loop", "no luck"))).rank_at_fault, std::nullopt);
  EXPECT_EQ(parse_error_file(R"({"message": {"message": "x", "extraInfo": {"rank": "2"}}})")->rank_at_fault,
            std::nullopt);
}

}  // namespace
}  // namespace gradus::dist
