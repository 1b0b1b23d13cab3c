// Choices of engines as JSON: what is written comes back, and nothing else is taken.
#include "gradus/tensor/cuda/cudnn/choice_json.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gradus/tensor/base/error.h"

namespace gradus::cuda {
namespace {

const DeviceModel kH100{"NVIDIA H100 80GB HBM3", 9, 0};

ConvKey key(int64_t n = 32) {
  return {ConvPass::kForward, DType::kF32, false,  false,  {n, 64, 56, 56},
          {64, 64, 3, 3},     {1, 1},      {1, 1}, {1, 1}, {16, 16, 16, 0}};
}
const ConvChoice kChoice{70, {{2, 4}, {18, 0}}};

ConvChoices read(const std::string& text, int64_t version = 91900) {
  return from_json("load_plans", "some/plans.json", text, version);
}

TEST(ChoiceJson, ComesBack) {
  ConvChoices choices;
  for (const auto pass : {ConvPass::kForward, ConvPass::kInputGrad, ConvPass::kWeightGrad})
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16})
      for (const int flags : {0, 1, 2, 3}) {
        ConvKey k = key();
        k.pass = pass, k.dtype = dtype, k.tf32 = flags & 1, k.relu = flags & 2;
        choices[kH100][k] = {int64_t(choices[kH100].size()), {{12, -1}, {2, 3}}};
      }
  ConvKey flat{ConvPass::kForward, DType::kF32, false, false, {1, 2, 3},
               {4, 2, 1},          {2},         {0},   {3},   {4, 8, 16, 2}};
  choices[kH100][flat] = {0, {}};
  choices[{"a \"card\" \\ \xc3\xa9", 8, 6}][key()] = kChoice;
  const std::string text = to_json(choices, 91900);
  EXPECT_EQ(read(text), choices);
  EXPECT_EQ(read(to_json({}, 91900)), ConvChoices());
  EXPECT_EQ(to_json(read(text), 91900), text);
}

// A line for each.
TEST(ChoiceJson, IsReadable) {
  const std::string rest = R"(,64,56,56],"w":[64,64,3,3],"stride":[1,1],"padding":[1,1],"dilation":[1,1],)"
                           R"("alignments":[16,16,16,0],"engine":70,"knobs":[[2,4],[18,0]]})";
  const std::string head =
      R"({"format": "gradus convolution plans", "version": 1, "cudnn": 91900, "devices": [
{"name": "NVIDIA H100 80GB HBM3", "compute_capability": [9, 0], "convolutions": [
)";
  const std::string first = R"({"pass":"forward","dtype":"f32","tf32":false,"relu":false,"x":[32)" + rest,
                    second = R"({"pass":"forward","dtype":"f32","tf32":false,"relu":false,"x":[64)" + rest;
  EXPECT_EQ(to_json({{kH100, {{key(), kChoice}, {key(64), kChoice}}}}, 91900),
            head + first + ",\n" + second + "]}]}\n");
}

// The most of all that a file may have.
ConvKey largest_key() {
  const int64_t size = int64_t(1) << 59;
  return {.pass = ConvPass::kWeightGrad,
          .dtype = DType::kBF16,
          .tf32 = false,
          .relu = false,
          .x = Dims::filled(kMaxDims, size),
          .w = Dims::filled(kMaxDims, size),
          .stride = Dims::filled(kMaxDims - 2, size),
          .padding = Dims::filled(kMaxDims - 2, size),
          .dilation = Dims::filled(kMaxDims - 2, size),
          .alignments = {16, 16, 16, 16}};
}
ConvChoice largest_choice() {
  ConvChoice c{int64_t(1) << 31, {}};
  for (size_t i = 0; i < kMostKnobs; ++i) c.knobs.push_back({63, -(int64_t(1) << 31)});
  return c;
}
DeviceModel longest_model() { return {std::string(200, '"'), 1000, 1000}; }

// What is storable is never too large to be read.
TEST(ChoiceJson, TheLargestFileComesBack) {
  for (const bool one_device : {true, false}) {
    ConvChoices choices;
    for (size_t i = 0; i < kMostChoices; ++i) {
      ConvKey k = largest_key();
      k.x[0] -= int64_t(i);
      DeviceModel model = longest_model();
      if (!one_device)
        for (size_t bit = 0; bit < 13; ++bit)
          if (i >> bit & 1) model.name[bit] = '\\';
      choices[model].emplace(k, largest_choice());
    }
    EXPECT_EQ(count(choices), kMostChoices);
    EXPECT_EQ(choices.size(), one_device ? 1 : kMostChoices);
    EXPECT_EQ(storable(choices, 91900), choices);
    const std::string text = to_json(choices, 91900);
    EXPECT_LT(text.size(), kMostBytesOfChoices);
    EXPECT_EQ(read(text), choices);
  }
}

// One more than the most of anything: it is left out, and the rest comes back.
TEST(ChoiceJson, WhatWouldBeRefusedIsNotStorable) {
  using Change = std::function<void(DeviceModel&, ConvKey&, ConvChoice&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"a longer name", [](DeviceModel& m, ConvKey&, ConvChoice&) { m.name += 'x'; }},
      {"a name of several lines", [](DeviceModel& m, ConvKey&, ConvChoice&) { m.name[0] = '\n'; }},
      {"a name that is no text", [](DeviceModel& m, ConvKey&, ConvChoice&) { m.name = "\xff"; }},
      {"capability", [](DeviceModel& m, ConvKey&, ConvChoice&) { ++m.major; }},
      {"dtype", [](DeviceModel&, ConvKey& k, ConvChoice&) { k.dtype = DType::kI32; }},
      {"x", [](DeviceModel&, ConvKey& k, ConvChoice&) { ++k.x[0]; }},
      {"w", [](DeviceModel&, ConvKey& k, ConvChoice&) { ++k.w[1]; }},
      {"stride", [](DeviceModel&, ConvKey& k, ConvChoice&) { ++k.stride[2]; }},
      {"padding", [](DeviceModel&, ConvKey& k, ConvChoice&) { k.padding[0] = -1; }},
      {"dilation", [](DeviceModel&, ConvKey& k, ConvChoice&) { k.dilation[1] = 0; }},
      {"alignments", [](DeviceModel&, ConvKey& k, ConvChoice&) { k.alignments[3] = 32; }},
      {"engine", [](DeviceModel&, ConvKey&, ConvChoice& c) { ++c.engine; }},
      {"a knob's type", [](DeviceModel&, ConvKey&, ConvChoice& c) { ++c.knobs[5].type; }},
      {"a knob's value", [](DeviceModel&, ConvKey&, ConvChoice& c) { --c.knobs[31].value; }},
      {"one knob more", [](DeviceModel&, ConvKey&, ConvChoice& c) {
         c.knobs.push_back({1, 1});
       }}};
  for (const auto& [what, change] : changes) {
    DeviceModel model = longest_model();
    ConvKey k = largest_key();
    ConvChoice choice = largest_choice();
    const ConvChoices rest{{model, {{k, choice}}}, {kH100, {{key(), kChoice}}}};
    change(model, k, choice);
    if (model == longest_model() && k == largest_key()) k.x[0] = 1;  // beside the other
    ConvChoices all = rest;
    all[model].emplace(k, choice);
    EXPECT_EQ(count(all), 3u) << what;
    EXPECT_EQ(storable(all, 91900), rest) << what;
  }
  EXPECT_EQ(storable({}, 91900), ConvChoices());
}

// `text` with the first `from` replaced.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}
void expect_refused(const std::string& text, const std::string& words) {
  try {
    read(text);
    ADD_FAILURE() << "taken: " << text.substr(0, 200);
  } catch (const FileError& e) {
    const std::string said = e.what();
    EXPECT_TRUE(said.starts_with("[load_plans] some/plans.json: ")) << said;
    EXPECT_NE(said.find(words), std::string::npos) << "no \"" << words << "\" in: " << said;
    EXPECT_LT(said.size(), 600u);
  }
}

TEST(ChoiceJson, RefusesOtherText) {
  const std::string good = to_json({{kH100, {{key(), kChoice}}}}, 91900);
  EXPECT_EQ(count(read(good)), 1u);
  const std::array<std::array<std::string, 3>, 53> wrong = {{
      {"{\"format\"", "\"format\"", "is not JSON"},
      {"]}]}", "]}]", "is not JSON"},
      {"gradus convolution plans", "gradus \xff plans", "is not JSON"},
      {"gradus convolution plans", "plans", "expected \"format\""},
      {"\"gradus convolution plans\"", "7", "\"format\": expected text, given 7"},
      {"\"format\"", "\"formal\"", "has no \"format\""},
      {"\"version\": 1", "\"version\": 2", "has version 2 of the format"},
      {"\"version\": 1", "\"version\": \"1\"", "\"version\": expected a whole number"},
      {"91900", "91800", "is for cuDNN 91800, and this is 91900"},
      {"91900", "-91900", "\"cudnn\": expected a whole number"},
      {"91900", "91900.0", "\"cudnn\": expected a whole number"},
      {"91900", "18446744073709551615", "\"cudnn\": expected a whole number"},
      {"91900", "null", "\"cudnn\": expected a whole number"},
      {"\"devices\": [", "\"devices\": 3, \"more\": [", "\"devices\": expected a list, given 3"},
      {"{\"name\"", "[], {\"name\"", "expected an object with \"name\""},
      {"\"NVIDIA H100 80GB HBM3\"", "[]", "\"name\": expected text, given []"},
      {"[9, 0]", "9", "\"compute_capability\": expected a list"},
      {"[9, 0]", "[9]", "\"compute_capability\": expected 2 numbers, given [9]"},
      {"[9, 0]", "[9, 0, 0]", "\"compute_capability\": expected at most 2 entries, given 3"},
      {"[9, 0]", "[9, 1e9]", "\"compute_capability\": expected a whole number from 0 to 1000"},
      {"\"convolutions\": [", "\"convolutions\": [true, ", "expected an object with \"pass\", given true"},
      {"\"forward\"", "\"backward\"", "\"pass\": given \"backward\""},
      {"\"forward\"", "0", "\"pass\": expected text, given 0"},
      {"\"f32\"", "\"i32\"", "\"dtype\": given \"i32\""},
      {"\"tf32\":false", "\"tf32\":0", "\"tf32\": expected true or false, given 0"},
      {"\"relu\":false,", "", "has no \"relu\""},
      {"\"x\":[32,64,56,56]", "\"x\":[32,64]", "\"x\": expected 3 sizes or more"},
      {"\"x\":[32,64,56,56]", "\"x\":[1,1,1,1,1,1,1,1,1]", "\"x\": expected at most 8 entries"},
      {"\"x\":[32,64,56,56]", "\"x\":[32,64,56]", "\"w\": expected at most 3 entries, given 4"},
      {"\"x\":[32,", "\"x\":[-32,", "\"x\": expected a whole number from 0 to 576460752303423488, given -32"},
      {"\"x\":[32,", "\"x\":[9223372036854775807,", "given 9223372036854775807"},
      {"\"x\":[32,", "\"x\":[18446744073709551615,", "given 18446744073709551615"},
      {"\"x\":[32,", "\"x\":[1e400,", "is not JSON"},
      {"\"x\":[32,", "\"x\":[[32],", "\"x\": expected a whole number"},
      {"\"w\":[64,64,3,3]", "\"w\":{}", "\"w\": expected a list, given {}"},
      {"\"stride\":[1,1]", "\"stride\":[0,1]", "\"stride\": expected a whole number from 1"},
      {"\"stride\":[1,1]", "\"stride\":[1]", "\"stride\": expected 2 numbers, given [1]"},
      {"\"padding\":[1,1]", "\"padding\":[-1,1]", "\"padding\": expected a whole number from 0"},
      {"\"dilation\":[1,1]", "\"dilation\":[1,0]", "\"dilation\": expected a whole number from 1"},
      {"[16,16,16,0]", "[16,16,16]", "\"alignments\": expected 4 numbers"},
      {"[16,16,16,0]", "[16,16,32,0]", "\"alignments\": expected a whole number from 0 to 16, given 32"},
      {"\"engine\":70", "\"engine\":-1", "\"engine\": expected a whole number from 0"},
      {"\"engine\":70", "\"engine\":3000000000", "\"engine\": expected a whole number from 0"},
      {"\"engine\":70,", "", "has no \"engine\" in {"},
      {"[[2,4],[18,0]]", "[2,4]", "\"knobs\": expected pairs of a type and a value, given 2"},
      {"[[2,4],[18,0]]", "[[2,4,6]]", "\"knobs\": expected pairs"},
      {"[[2,4],[18,0]]", "[[64,4]]", "\"knobs\": expected a whole number from 0 to 63, given 64"},
      {"[[2,4],[18,0]]", "[[-1,4]]", "\"knobs\": expected a whole number from 0 to 63, given -1"},
      {"[[2,4],[18,0]]", "[[2,3000000000]]", "\"knobs\": expected a whole number from -2147483648"},
      {"[[2,4],[18,0]]", "[[2,18446744073709551615]]", "\"knobs\": expected a whole number from -2147483648"},
      {"[[2,4],[18,0]]", "[[2,-3000000000]]", "\"knobs\": expected a whole number from -2147483648"},
      {"[[2,4],[18,0]]", "[[[[[2,4]]]]]", "has more than 8 brackets within each other"},
      {"[[2,4],[18,0]]", "{\"2\":4}", "\"knobs\": expected a list"},
  }};
  for (const auto& [from, to, words] : wrong) expect_refused(changed(good, from, to), words);
  expect_refused("", "is not JSON");
  expect_refused("3", "expected an object with \"format\", given 3");
  expect_refused("[]", "expected an object with \"format\", given []");
  expect_refused(std::string(1000, '['), "brackets");
}

TEST(ChoiceJson, IsBounded) {
  const std::string good = to_json({{kH100, {{key(), kChoice}}}}, 91900);
  expect_refused(std::string(kMostBytesOfChoices + 1, ' ') + good, "has more than 16777216 bytes");
  std::string many = "[0";
  for (size_t i = 0; i < kMostChoices * 256; ++i) many += ",0";
  expect_refused(changed(good, "\"devices\": [", "\"more\":" + many + "], \"devices\": ["), "parts");
  std::string knobs = "[[2,4]";
  for (size_t i = 0; i < kMostKnobs; ++i) knobs += ",[2,4]";
  expect_refused(changed(good, "[[2,4],[18,0]]", knobs + "]"),
                 "\"knobs\": expected at most 32 entries, given 33");
  const size_t begin = good.find("{\"pass\""), end = good.rfind("]}]}");
  const std::string line = good.substr(begin, end - begin);
  expect_refused(changed(good, line, line + "," + line), "has a convolution twice");
  ConvChoices choices;
  for (size_t i = 0; i <= kMostChoices; ++i) choices[kH100][key(int64_t(i))] = kChoice;
  expect_refused(to_json(choices, 91900), "expected at most 8192 entries, given 8193");
  auto& half = choices[{"another", 9, 0}];
  for (size_t i = 0; i <= kMostChoices / 2; ++i) half.insert(choices[kH100].extract(key(int64_t(i))));
  expect_refused(to_json(choices, 91900), "has more than 8192 convolutions");
}

// ---- what is kept

TEST(KeptChoices, AreReplacedByWhoHasSeenThem) {
  KeptChoices kept;
  const ConvChoice first{1, {}}, second{2, {}}, third{3, {{1, 1}}};
  EXPECT_EQ(kept.find(kH100, key()), std::nullopt);
  kept.replace(kH100, key(), {}, first);
  EXPECT_EQ(kept.find(kH100, key()), first);
  kept.replace(kH100, key(), {}, second);  // saw none: too late
  EXPECT_EQ(kept.find(kH100, key()), first);
  kept.replace(kH100, key(), first, second);
  EXPECT_EQ(kept.find(kH100, key()), second);
  kept.replace(kH100, key(), first, third);
  EXPECT_EQ(kept.find(kH100, key()), second);
  EXPECT_EQ(kept.find({"another", 9, 0}, key()), std::nullopt);
  EXPECT_EQ(kept.find({kH100.name, 8, 0}, key()), std::nullopt);
  EXPECT_EQ(kept.find(kH100, key(33)), std::nullopt);
  kept.clear();
  kept.replace(kH100, key(), second, third);  // what was seen is gone
  EXPECT_EQ(kept.find(kH100, key()), std::nullopt);
}

TEST(KeptChoices, AreBounded) {
  KeptChoices kept;
  const DeviceModel other{"another", 8, 0};
  for (size_t i = 0; i < kMostChoices + 10; ++i)
    kept.replace(i % 2 ? kH100 : other, key(int64_t(i)), {}, kChoice);
  EXPECT_EQ(count(kept.all()), kMostChoices);
  EXPECT_EQ(kept.find(other, key(0)), kChoice);
  EXPECT_EQ(kept.find(other, key(int64_t(kMostChoices))), std::nullopt);
  // Those of a file come in.
  ConvChoices file;
  for (size_t i = 0; i < 20; ++i) file[kH100][key(int64_t(kMostChoices + i))] = {5, {}};
  file[other][key(0)] = {6, {}};
  kept.add(file);
  EXPECT_EQ(count(kept.all()), kMostChoices);
  EXPECT_EQ(kept.find(kH100, key(int64_t(kMostChoices + 19))), (ConvChoice{5, {}}));
  EXPECT_EQ(kept.find(other, key(0)), (ConvChoice{6, {}}));
}

}  // namespace
}  // namespace gradus::cuda
