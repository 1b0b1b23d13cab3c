// Runs the C++ training loop of docs/guide/from-pytorch.md, and the last code block of docs/guide/first-gan.md,
// which resumes a training. Checks that the tables of from-pytorch.md use only names that occur in headers.
// Paths are relative to the working directory, the root of the repository.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "gradus/gradus.h"

namespace gradus {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing";
  return {std::istreambuf_iterator<char>(file), {}};
}

// Adds capture group `group` (0: the whole match) of each match to `into`.
void add_matches(const std::string& text, const std::regex& pattern, size_t group,
                 std::set<std::string>& into) {
  for (std::sregex_iterator i(text.begin(), text.end(), pattern), end; i != end; ++i)
    into.insert((*i)[group]);
}

// Returns the identifiers in the second column ("Gradus") of each table: the words within backticks, without
// string literals.
std::set<std::string> names_in_tables() {
  std::istringstream lines(text_of("docs/guide/from-pytorch.md"));
  std::set<std::string> code, names;
  for (std::string line; std::getline(lines, line);) {
    std::smatch cells;
    // skips text and the header rows
    if (!std::regex_match(line, cells, std::regex(R"(\| (.*?) \| (.*?) \|.*\|)")) || cells[2] == "Gradus")
      continue;
    add_matches(cells[2].str(), std::regex("`([^`]*)`"), 1, code);
  }
  for (const std::string& c : code)
    add_matches(std::regex_replace(c, std::regex("\"[^\"]*\""), ""), std::regex(R"([A-Za-z_]\w*)"), 0, names);
  return names;
}

TEST(FromPyTorchPage, NamesNothingThatIsNotThere) {
  std::set<std::string> known;
  for (const char* folder :
       {"tensor", "autograd", "nn", "optim", "models", "data", "io", "train", "distributed", "vision"})
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder))
      if (file.path().extension() == ".h")
        add_matches(text_of(file.path()), std::regex(R"([A-Za-z_]\w*)"), 0, known);
  std::string unknown;
  for (const std::string& name : names_in_tables())
    if (!known.count(name)) unknown += " " + name;
  EXPECT_EQ(unknown, "");
}

TEST(FromPyTorchPage, ATrainingSideBySide) {
  manual_seed(1);
  set_num_threads(1);
  const data::GeneratedDigits digits({.size = 1024});
  data::DataLoader loader(digits, {.batch_size = 32, .shuffle = true, .seed = 1});
  struct Net : nn::Layer {
    nn::Linear fc1{this, "fc1", {.in = 784, .out = 128}};
    nn::Linear fc2{this, "fc2", {.in = 128, .out = 10}};
    Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
  };

  Net net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::Adam optimizer(net.parameters(), {.lr = 1e-3, .betas = {0.9, 0.99}});
  for (const data::Batch& b : loader) {
    auto recording = gm.record();
    Tensor loss = nn::cross_entropy(net(b.input), b.target);
    gm.backward(loss);
    optimizer.step().clear_grad();
  }
  metrics::Accuracy accuracy;
  for (const data::Batch& b : loader) accuracy.update(net(b.input), b);
  EXPECT_GT(accuracy.compute(), 0.5);  // 0.1 by chance
}

// Runs the code block twice, with the page's state.save() between, in a temporary folder.
TEST(FirstGanPage, ATrainingThatGoesOn) {
  nn::Linear gen({.in = 4, .out = 4}), disc({.in = 4, .out = 1});
  optim::Adam opt_g(gen.parameters()), opt_d(disc.parameters());
  const data::GeneratedDigits digits({.size = 64});
  data::DataLoader loader(digits, {.batch_size = 16, .shuffle = true, .seed = 1});
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());
  for (const char* name : {"runs/gan.ckpt", "runs/gan.ckpt.previous"}) std::remove(name);
  TrainingState state{{"gen", gen}, {"disc", disc}, {"opt_g", opt_g}, {"opt_d", opt_d}, {"loader", loader}};
  state.resume("runs/gan.ckpt");  // on all ranks, before the loop
  state.save("runs/gan.ckpt");
  EXPECT_TRUE(state.resume("runs/gan.ckpt"));
  std::filesystem::current_path(here);
}

}  // namespace
}  // namespace gradus
