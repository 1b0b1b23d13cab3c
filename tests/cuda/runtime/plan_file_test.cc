// Files of convolution plans: round trip of all fields, the text of a line, and errors of malformed lines.
#include "gradus/tensor/cuda/cudnn/plan_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {
namespace {

const DeviceModel kH100{"NVIDIA H100 80GB HBM3", 9, 0};
const ConvChoice kChoice{70, {{2, 4}, {18, 0}}};
const std::string kHeader = "gradus_conv_plans 2 cudnn 91900 device 9 0 NVIDIA H100 80GB HBM3\n";
const std::string kLine =
    "forward f32 tf32 0 relu 0 deterministic 1 x 4 32 64 56 56 w 4 64 64 3 3 stride 2 1 1 padding 2 1 1 "
    "dilation 2 1 1 alignments 4 16 16 16 0 engine 70 knobs 2 2 4 18 0\n";

ConvKey key() {
  return {ConvPass::kForward, DType::kF32, false,  false,  true,           {32, 64, 56, 56},
          {64, 64, 3, 3},     {1, 1},      {1, 1}, {1, 1}, {16, 16, 16, 0}};
}

struct PlanFileTest : testing::Test {
  const std::string path = testing::TempDir() + "/gradus_plan_file.txt";

  std::string text_of(const PlanFile& file) {
    write_plan_file("save_plans", path, file);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  // The error of a file with this text.
  std::string refused(const std::string& text) {
    std::ofstream(path) << text;
    try {
      read_plan_file("load_plans", path);
    } catch (const FileError& e) {
      return e.what();
    }
    return "taken";
  }
};

TEST_F(PlanFileTest, IsReadAsItWasWritten) {
  PlanFile file{91900, kH100, {}};
  for (const auto pass : {ConvPass::kForward, ConvPass::kInputGrad, ConvPass::kWeightGrad})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
      for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7}) {
        ConvKey k = key();
        k.pass = pass, k.dtype = dtype;
        k.tf32 = flags & 1, k.relu = flags & 2, k.deterministic = flags & 4;
        file.choices[k] = {int64_t(file.choices.size()), {{12, -1}, {2, 3}}};
      }
  ConvKey k = key();
  k.x = {1, 2, 3}, k.w = {4, 2, 1}, k.stride = {2}, k.padding = {0}, k.dilation = {3};
  k.alignments = {4, 8, 16, 2};
  file.choices[k] = {0, {}};
  write_plan_file("save_plans", path, file);
  const PlanFile read = read_plan_file("load_plans", path);
  EXPECT_EQ(read.cudnn_version, 91900);
  EXPECT_EQ(read.model, kH100);
  EXPECT_EQ(read.choices, file.choices);
}

TEST_F(PlanFileTest, HasALineForEachConvolution) {
  EXPECT_EQ(text_of({91900, kH100, {{key(), kChoice}}}), kHeader + kLine);
  EXPECT_EQ(text_of({91900, kH100, {}}), kHeader);
  EXPECT_EQ(refused(kHeader + kLine), "taken");
}

TEST_F(PlanFileTest, MalformedLinesAreRefused) {
  EXPECT_EQ(refused(""), "[load_plans] " + path + ": line 1 is not one of a file of convolution plans");
  EXPECT_NE(refused("gradus_conv_plans 1 cudnn 91900 device 9 0 x\n").find("line 1 "), std::string::npos);
  EXPECT_NE(refused(kHeader + kLine + kLine).find("line 3 "), std::string::npos) << "twice";
  // An invalid word in place of each word; "" ends the line there.
  std::istringstream words(kLine);
  std::string before, word;
  while (words >> word) {
    for (const char* wrong : {"", "-", "-9223372036854775809", "what"}) {
      std::string line = before + wrong;
      EXPECT_NE(refused(kHeader + line + '\n').find("line 2 "), std::string::npos) << line;
    }
    before += word + ' ';
  }
  EXPECT_NE(refused(kHeader + before + "1\n").find("line 2 "), std::string::npos) << "more than a line has";
  for (const auto& [from, to] : {std::pair{"x 4", "x 9"},
                                 {"x 4", "x -1"},
                                 {"tf32 0", "tf32 2"},
                                 {"deterministic 1", "deterministic 2"},
                                 {"knobs 2", "knobs 33"},
                                 {"knobs 2 2", "knobs 2 64"},
                                 {"knobs 2 2", "knobs 2 -1"},
                                 {"engine 70", "engine -1"}}) {
    std::string line = kLine;
    line.replace(line.find(from), std::string(from).size(), to);
    EXPECT_NE(refused(kHeader + line).find("line 2 "), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace gradus::cuda
