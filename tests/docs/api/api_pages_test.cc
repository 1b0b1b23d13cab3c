// The pages of docs/api mention every public op, layer, loss, optimizer and schedule, and no name that
// headers lack. Paths are relative to the root of the repository.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "gradus/tests/ops/public_ops.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing";
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> words_of(const std::string& text) {
  static const std::regex word(R"([A-Za-z_]\w*)");
  std::set<std::string> words;
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i) words.insert(i->str());
  return words;
}

std::string pages() {
  std::string text;
  for (const auto& page : fs::directory_iterator("docs/api")) text += text_of(page.path());
  return text;
}

std::string headers(std::initializer_list<const char*> folders) {
  std::string text;
  for (const char* folder : folders)
    for (const auto& file : fs::recursive_directory_iterator(folder))
      // optim/rules has the formulas of kernels.
      if (file.path().extension() == ".h" && file.path().parent_path() != "optim/rules")
        text += text_of(file.path());
  return text;
}

// Returns the classes in a folder's headers, class templates by their aliases, without options and internals.
std::set<std::string> classes(const char* folder) {
  static const std::regex declaration(
      R"((?:^|\n)(?:class|struct) (\w+)(?: final)?(?: :[^;{]*)?\s*\{)"
      R"(|\nusing (\w+) =\s+)"
      R"((?:KernelOptimizer|FormulaLR|BatchNormOf|Conv|DropoutOf|InstanceNormOf|Loss|MaxUnpool|OpLayer|Pool|PadLayer)<)");
  // Namespaces `internal` are for other folders of Gradus.
  static const std::regex internal(
      R"(namespace gradus::\w+::internal \{[^]*?\}  // namespace gradus::\w+::internal)");
  const std::string text = std::regex_replace(headers({folder}), internal, "");
  std::set<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), declaration), end; i != end; ++i)
    for (const std::string& name : {(*i)[1].str(), (*i)[2].str()})
      if (!name.empty() && !name.ends_with("Options")) names.insert(name);
  return names;
}

std::string missing_of(const std::set<std::string>& names) {
  const std::set<std::string> words = words_of(pages());
  std::string missing;
  for (const std::string& name : names)
    if (!words.count(name)) missing += " " + name;
  return missing;
}

// The pages have operators as symbols, and no fused gradients, which only derivative rules call.
bool is_for_users(const std::string& op) {
  return op.rfind("operator", 0) != 0 && op.find("_backward") == std::string::npos &&
         op.find("_grad") == std::string::npos;
}

TEST(ApiPages, NameEveryOp) {
  std::set<std::string> ops;
  for (const std::string& op : optest::public_ops())
    if (is_for_users(op)) ops.insert(op);
  EXPECT_GT(ops.size(), 100u);
  EXPECT_EQ(missing_of(ops), "");
}

TEST(ApiPages, NameEveryLayer) { EXPECT_EQ(missing_of(classes("nn")), ""); }
TEST(ApiPages, NameEveryOptimizerAndSchedule) { EXPECT_EQ(missing_of(classes("optim")), ""); }

// `name` or `name(...)` in a page, also as `nn::Name`, is an identifier of some header.
TEST(ApiPages, NameNothingThatIsNotThere) {
  const std::set<std::string> known =
      words_of(headers({"tensor", "autograd", "nn", "optim", "models", "data", "io", "train", "vision"}));
  std::string text = std::regex_replace(pages(), std::regex("```[^`]*```"), "");
  static const std::regex name(R"(`(?:\w+::)*([A-Za-z_]\w*)(?:\([^`]*\))?`)");
  std::string unknown;
  for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i)
    if (!known.count((*i)[1])) unknown += " " + (*i)[1].str();
  EXPECT_EQ(unknown, "");
}

}  // namespace
}  // namespace gradus
