// Instruction set levels and the variable GRADUS_CPU, which lowers the level.
#include "gradus/tensor/runtime/processor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gradus/tensor/base/error.h"

namespace gradus::cpu {
namespace {

constexpr Level kLevelsOfX86[] = {Level::kSse41, Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16,
                                  Level::kAmx};

TEST(Processor, LevelsHaveNames) {
  EXPECT_EQ(parse_level("neon"), Level::kNeon);
  EXPECT_EQ(name_of(Level::kNeon), "neon");
  for (Level l : kLevelsOfX86) EXPECT_EQ(parse_level(name_of(l)), l);
}

// For a death test's child process, because the variable is read once. Returns the level; 100 after an error.
int level_in_child(const char* value) {
  setenv("GRADUS_CPU", value, 1);
  try {
    return int(level());
  } catch (const ValueError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 100;
  }
}

TEST(ProcessorDeathTest, TheVariableHoldsItToALesserLevelAndNeverAHigherOne) {
  for (Level l : kLevelsOfX86)
    EXPECT_EXIT(std::_Exit(level_in_child(name_of(l).data())),
                testing::ExitedWithCode(int(std::min(l, processor_level()))), "");
  for (const char* own : {"", "neon"})
    EXPECT_EXIT(std::_Exit(level_in_child(own)), testing::ExitedWithCode(int(processor_level())), "");
}

TEST(ProcessorDeathTest, AnUnknownLevelIsAnErrorThatListsThem) {
  const char* text = "GRADUS_CPU. expected one of neon, sse41, avx2, avx512, avx512_bf16, amx, got 'avx3";
  for (const char* wrong :
       {"avx3", "avx3 and very much more than anybody would ever want to read in a message"})
    EXPECT_EXIT(std::_Exit(level_in_child(wrong)), testing::ExitedWithCode(100), text);
}

}  // namespace
}  // namespace gradus::cpu
