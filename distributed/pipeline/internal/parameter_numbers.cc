// Implementation of ParameterNumbers.
#include "gradus/distributed/pipeline/internal/parameter_numbers.h"

#include <charconv>
#include <optional>
#include <unordered_map>

#include "gradus/distributed/base/wire.h"
#include "gradus/distributed/group/attempt.h"

namespace gradus::dist::internal {
namespace {

constexpr const char* kOp = "Pipeline";
constexpr std::string_view kState = "state", kGroup = "group";

// A parsed name: "state.3.exp_avg" or "group.0.lr".
struct Name {
  std::string_view kind;
  size_t number = 0;
  std::string_view rest;
};

std::optional<Name> parse(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == text.npos) return {};
  Name name;
  name.kind = text.substr(0, dot);
  const auto [end, error] = std::from_chars(text.data() + dot + 1, text.data() + text.size(), name.number);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') return {};
  name.rest = text.substr(size_t(end - text.data()) + 1);
  if (name.kind != kState && name.kind != kGroup) return {};
  return name;
}

std::string to_string(const Name& name) { return concat(name.kind, '.', name.number, '.', name.rest); }

// Returns g if `text` is "group.<g>.params", the entry with the size of group g, and g < groups.
std::optional<size_t> group_of_size_entry(std::string_view text, size_t groups) {
  const std::optional<Name> name = parse(text);
  if (!name || name->kind != kGroup || name->rest != "params" || name->number >= groups) return {};
  return name->number;
}

}  // namespace

ParameterNumbers::ParameterNumbers(StagedModel& model, const optim::Optimizer& opt) {
  std::vector<std::vector<std::string>> local_names;  // names, by group
  const std::vector<std::string> all = attempt(kOp, [&] {
    std::unordered_map<const TensorImpl*, std::string> names;
    for (const auto& [name, p] : model.named_parameters()) names[p.ref().get()] = name;
    for (size_t g = 0; g < opt.num_groups(); ++g) {
      local_names.emplace_back();
      for (const Tensor& p : opt.parameters(g)) {
        const auto found = names.find(p.ref().get());
        if (found == names.end())
          throw ValueError(kOp, "expected an optimizer over pipe.parameters(), got one with ", describe(p),
                           " in group ", g);
        local_names.back().push_back(found->second);
      }
    }
    return to_wire(local_names);
  });

  std::unordered_map<std::string, size_t> group_of;
  size_t expected = 0;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto groups = from_wire<std::vector<std::vector<std::string>>>(all[rank]);
    if (rank == 0) expected = groups.size();
    if (groups.size() != expected)
      throw ValueError(kOp,
                       "expected as many groups of parameters on all ranks: the optimizer of rank 0 has ",
                       expected, ", that of rank ", rank, " has ", groups.size());
    for (size_t g = 0; g < groups.size(); ++g)
      for (const std::string& name : groups[g])
        if (group_of.try_emplace(name, g).first->second != g)
          throw ValueError(kOp, "parameter '", name, "' is in group ", g, " on rank ", rank,
                           ", and elsewhere in group ", group_of[name]);
  }
  std::unordered_map<std::string, size_t> number_of;
  for (size_t g = 0; g < local_names.size(); ++g) {
    const size_t first = parameters_;
    for (const auto& [name, p] : model.module().named_parameters())
      if (const auto group = group_of.find(name); group != group_of.end() && group->second == g)
        number_of[name] = parameters_++;
    sizes_.push_back(parameters_ - first);
    own_sizes_.push_back(local_names[g].size());
  }
  for (const auto& group : local_names)
    for (const std::string& name : group) {
      own_[number_of.at(name)] = undivided_.size();
      undivided_.push_back(number_of.at(name));
    }
}

optim::State ParameterNumbers::undivided(const optim::State& own) const {
  const auto translate = [&](const std::string& text) {
    std::optional<Name> name = parse(text);
    if (!name)
      throw ValueError(kOp, "the optimizer's '", text,
                       "' belongs to no parameter, and cannot be cut into stages");
    if (name->kind == kState) name->number = undivided_.at(name->number);
    return to_string(*name);
  };
  optim::State state;
  for (const auto& [text, x] : own.tensors) state.tensors.emplace_back(translate(text), x);
  for (const auto& [text, value] : own.numbers) {
    const std::optional<size_t> group = group_of_size_entry(text, sizes_.size());
    state.numbers.emplace_back(translate(text), group ? double(sizes_[*group]) : value);
  }
  return state;
}

optim::State ParameterNumbers::own(const optim::State& undivided,
                                   const std::function<Tensor(const std::string&)>& read) const {
  // Returns this rank's name of an entry, or nullopt for an entry of another rank's parameter.
  const auto translate = [&](const std::string& text) -> std::optional<std::string> {
    std::optional<Name> name = parse(text);
    if (!name || name->kind != kState || name->number >= parameters_) return text;
    const auto found = own_.find(name->number);
    if (found == own_.end()) return {};
    name->number = found->second;
    return to_string(*name);
  };
  optim::State state;
  for (const auto& [text, value] : undivided.numbers) {
    const std::optional<std::string> name = translate(text);
    if (!name) continue;
    const std::optional<size_t> group = group_of_size_entry(text, sizes_.size());
    if (group && value != double(sizes_[*group]))
      throw ValueError(kOp, "expected ", sizes_[*group], " parameters in the optimizer's group ", *group,
                       ", got ", value);
    state.numbers.emplace_back(*name, group ? double(own_sizes_[*group]) : value);
  }
  for (const auto& [text, x] : undivided.tensors)
    if (const auto name = translate(text)) state.tensors.emplace_back(*name, read(text));
  return state;
}

}  // namespace gradus::dist::internal
