#include "gradus/optim/optimizer_dict.h"

#include <algorithm>

namespace gradus::optim {
namespace {

constexpr const char* kOp = "OptimizerDict";

template <class List> void append_prefixed(List& to, const std::string& prefix, const List& from) {
  for (const auto& [name, value] : from) to.emplace_back(prefix + name, value);
}

}  // namespace

OptimizerDict::OptimizerDict(std::initializer_list<Entry> optimizers) {
  for (const Entry& entry : optimizers) {
    const std::string& name = entry.first;
    if (name.empty() || name.find('.') != std::string::npos)
      throw ValueError(kOp, "a name may not be empty or have a dot, given '", name, "'");
    if (contains(name)) throw ValueError(kOp, "the name '", name, "' is given more than once");
    entries_.push_back(entry);
  }
}

Optimizer& OptimizerDict::operator[](const std::string& name) const {
  std::string known;
  for (const auto& [key, optimizer] : entries_) {
    if (key == name) return optimizer;
    known += " '" + key + "'";
  }
  throw ValueError(kOp, "no optimizer '", name, "'; there are:", known);
}

bool OptimizerDict::contains(const std::string& name) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.first == name; });
}

std::vector<std::string> OptimizerDict::names() const {
  std::vector<std::string> all;
  for (const Entry& e : entries_) all.push_back(e.first);
  return all;
}

const OptimizerDict& OptimizerDict::clear_grad() const {
  for (const Entry& e : entries_) e.second.get().clear_grad();
  return *this;
}

std::map<std::string, std::vector<double>> OptimizerDict::lr() const {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, optimizer] : entries_)
    for (size_t g = 0; g < optimizer.get().num_groups(); ++g) all[name].push_back(optimizer.get().lr(g));
  return all;
}

std::map<std::string, std::vector<double>> OptimizerDict::momentum() const {
  std::map<std::string, std::vector<double>> all;
  for (const auto& [name, optimizer] : entries_)
    for (size_t g = 0; g < optimizer.get().num_groups(); ++g)
      all[name].push_back(optimizer.get().momentum(g));
  return all;
}

State OptimizerDict::state_dict() const {
  State all;
  for (const auto& [name, optimizer] : entries_) {
    const State state = optimizer.get().state_dict();
    append_prefixed(all.tensors, name + ".", state.tensors);
    append_prefixed(all.numbers, name + ".", state.numbers);
  }
  return all;
}

void OptimizerDict::load_state_dict(const State& state) const {
  StateReader in(state);
  for (const auto& [name, optimizer] : entries_) optimizer.get().read_state(in.below(name));
  in.finish("these optimizers");
}

}  // namespace gradus::optim
