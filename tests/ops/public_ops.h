// The names of the public ops, read from their headers.
#pragma once

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace gradus::optest {

// Returns the names of the functions that the headers of ops declare in namespace gradus itself. The
// headers are looked for below the current folder.
inline std::set<std::string> public_ops() {
  std::set<std::string> names;
  // Declarations begin a line; members of classes and overloads that are templates are indented or repeat a
  // name.
  const std::regex declaration(
      R"(^(?:inline )?(?:Tensor|void|std::\w+<.*>|[A-Z]\w*) (operator[^\s(]+|\w+)\()");
  for (const char* folder : {"autograd/ops", "tensor/ops"})
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      if (file.path().extension() != ".h") continue;
      std::ifstream text(file.path());
      std::vector<std::string> namespaces;
      for (std::string line; std::getline(text, line);) {
        std::smatch m;
        if (line.starts_with("namespace "))
          namespaces.push_back(line);
        else if (line.starts_with("}  // namespace") && !namespaces.empty())
          namespaces.pop_back();
        else if (namespaces == std::vector<std::string>{"namespace gradus {"} &&
                 std::regex_search(line, m, declaration))
          names.insert(m[1]);
      }
    }
  return names;
}

}  // namespace gradus::optest
