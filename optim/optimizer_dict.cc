#include "gradus/optim/optimizer_dict.h"

#include <algorithm>

namespace gradus::optim {
namespace {

constexpr const char* kOp = "OptimizerDict";

template <class List> void append_prefixed(List& to, const std::string& prefix, const List& from) {
  for (const auto& [name, value] : from) to.emplace_back(prefix + name, value);
}

// Moves the entries named "prefix..." from one list to another, without the prefix.
template <class List> void take_prefixed(List& from, const std::string& prefix, List& to) {
  std::erase_if(from, [&](const auto& entry) {
    if (entry.first.compare(0, prefix.size(), prefix) != 0) return false;
    to.emplace_back(entry.first.substr(prefix.size()), entry.second);
    return true;
  });
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
  State rest = state;
  std::vector<State> parts(entries_.size()), previous;
  for (size_t i = 0; i < entries_.size(); ++i) {
    take_prefixed(rest.tensors, entries_[i].first + ".", parts[i].tensors);
    take_prefixed(rest.numbers, entries_[i].first + ".", parts[i].numbers);
  }
  std::string unexpected;
  for (const auto& [name, t] : rest.tensors) unexpected += "\n  unexpected: " + name;
  for (const auto& [name, v] : rest.numbers) unexpected += "\n  unexpected: " + name;
  if (!unexpected.empty()) throw ValueError(kOp, "the state has what belongs to no optimizer:", unexpected);

  for (size_t i = 0; i < entries_.size(); ++i) {
    previous.push_back(entries_[i].second.get().state_dict());
    try {
      entries_[i].second.get().load_state_dict(parts[i]);
    } catch (Error& error) {
      for (size_t k = 0; k < i; ++k) entries_[k].second.get().load_state_dict(previous[k]);
      error.add_context(concat("optimizer '", entries_[i].first, "'"));
      throw;
    }
  }
}

}  // namespace gradus::optim
