// The names of the public ops, read from their headers.
#pragma once

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace gradus::optest {

// Calls visit(line, text) for each line of the op files with this extension that stands in namespace gradus
// itself; `text` goes on behind the line. The files are looked for below the current folder.
template <class Visit> void visit_op_files(const char* extension, const Visit& visit) {
  for (const char* folder : {"autograd/ops", "tensor/ops"}) {
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      if (file.path().extension() != extension) continue;
      std::ifstream text(file.path());
      std::vector<std::string> namespaces;
      for (std::string line; std::getline(text, line);) {
        if (line.rfind("namespace ", 0) == 0)
          namespaces.push_back(line);
        else if (line.rfind("}  // namespace", 0) == 0 && !namespaces.empty())
          namespaces.pop_back();
        else if (namespaces == std::vector<std::string>{"namespace gradus {"})
          visit(line, text);
      }
    }
  }
}

// Returns the names of the functions that the public op headers declare.
inline std::set<std::string> public_ops() {
  std::set<std::string> names;
  // Declarations stand at the start of a line; members of classes and overloads that are templates are
  // indented or repeat a name.
  const std::regex declaration(
      R"(^(?:inline )?(?:Tensor|void|std::\w+<.*>|[A-Z]\w*) (operator[^\s(]+|\w+)\()");
  visit_op_files(".h", [&](const std::string& line, std::istream&) {
    std::smatch m;
    if (std::regex_search(line, m, declaration)) names.insert(m[1]);
  });
  return names;
}

}  // namespace gradus::optest
