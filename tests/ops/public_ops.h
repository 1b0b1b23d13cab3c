// The names of the public ops, read from their headers.
#pragma once

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace gradus::optest {

// Names of the functions that the public op headers declare. The headers are looked for below the current folder.
inline std::set<std::string> public_ops() {
  std::set<std::string> names;
  // Declarations stand at the start of a line; members of classes and overloads that are templates are
  // indented or repeat a name.
  const std::regex declaration(
      R"(^(?:inline )?(?:Tensor|void|std::\w+<.*>|[A-Z]\w*) (operator[^\s(]+|\w+)\()");
  for (const char* folder : {"autograd/ops", "tensor/ops"}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() != ".h") continue;
      std::ifstream text(file.path());
      std::vector<std::string> namespaces;
      for (std::string line; std::getline(text, line);) {
        std::smatch m;
        if (line.rfind("namespace ", 0) == 0)
          namespaces.push_back(line);
        else if (line.rfind("}  // namespace", 0) == 0 && !namespaces.empty())
          namespaces.pop_back();
        else if (namespaces.size() == 1 && namespaces[0] == "namespace gradus {" &&
                 std::regex_search(line, m, declaration))
          names.insert(m[1]);
      }
    }
  }
  return names;
}

}  // namespace gradus::optest
