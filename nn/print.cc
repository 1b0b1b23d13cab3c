// to_string(Module): a number counts the elements of all parameters of a module and of its descendants, each shared
// parameter once. The root's number is in the last line only. Numbers are right-aligned in one column.
#include <algorithm>
#include <ostream>

#include "gradus/nn/module.h"
#include "gradus/nn/text.h"

namespace gradus::nn {
namespace {

struct Line {
  std::string text;
  std::string count;  // formatted number of parameters, "1,290"; empty: the line has no number
};

// Appends the lines of m and its descendants. The root has indent 0, and is printed without its name.
void add_lines(const Module& m, int indent, std::vector<Line>& lines) {
  const std::string pad(static_cast<size_t>(indent), ' ');
  const std::string label = m.name().empty() ? "" : "(" + m.name() + "): ";
  const std::string head = pad + (indent ? label : "") + m.type_name() + "(" + m.extra_repr();
  const bool known = m.is_initialized();
  const int64_t n = known ? m.num_parameters() : 0;
  if (m.children().empty()) {
    lines.push_back({head + ")", !known ? "uninitialized" : n ? with_commas(n) : ""});
    return;
  }
  lines.push_back({head, indent && n ? with_commas(n) : ""});
  for (const Module* child : m.children()) add_lines(*child, indent + 2, lines);
  lines.push_back({pad + ")", ""});
}

}  // namespace

std::string to_string(const Module& m) {
  std::vector<Line> lines;
  add_lines(m, 0, lines);
  size_t width = 0, digits = 0;
  for (const Line& l : lines)
    if (!l.count.empty()) width = std::max(width, l.text.size()), digits = std::max(digits, l.count.size());
  std::string out;
  for (const Line& l : lines) {
    out += l.text;
    if (!l.count.empty())
      out += std::string(width - l.text.size() + 2 + digits - l.count.size(), ' ') + l.count;
    out += '\n';
  }
  if (!m.is_initialized()) return out + "uninitialized until its first call";
  const std::vector<Tensor> parameters = m.parameters();
  int64_t bytes = 0;
  for (const Tensor& p : parameters) bytes += p.nbytes();
  return out + with_commas(m.num_parameters()) + " parameters in " + std::to_string(parameters.size()) +
         " tensors (" + format_bytes(bytes) + ")";
}

std::ostream& operator<<(std::ostream& out, const Module& m) { return out << to_string(m); }

}  // namespace gradus::nn
