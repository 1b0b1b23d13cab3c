// StateReader: reads the entries of a State (an optimizer's or schedule's state dict of tensors and numbers)
// by name, each once, and collects all errors; finish() throws them in one ValueError or applies the
// registered changes. Readers made by with_prefix() share one Content. One thread.
#include "gradus/optim/state.h"

#include <cmath>
#include <map>

#include "gradus/tensor/ops/copy.h"

namespace gradus::optim {

struct StateReader::Content {
  std::map<std::string, double> numbers;  // the unread entries
  std::map<std::string, Tensor> tensors;  // the unread entries
  std::string errors;                     // one line "\n  NAME: TEXT" per error
  std::vector<std::function<void()>> on_success;
};

StateReader::StateReader(std::shared_ptr<Content> content, std::string prefix)
    : content_(std::move(content)), prefix_(std::move(prefix)) {}

StateReader::StateReader(const State& state) : StateReader(std::make_shared<Content>(), "") {
  for (const auto& [name, v] : state.numbers)
    if (!content_->numbers.emplace(name, v).second) content_->errors += "\n  given more than once: " + name;
  for (const auto& [name, t] : state.tensors)
    if (!content_->tensors.emplace(name, t).second) content_->errors += "\n  given more than once: " + name;
}

StateReader StateReader::with_prefix(const std::string& prefix) const {
  return {content_, prefix_ + prefix + "."};
}

bool StateReader::contains(const std::string& name) const {
  return content_->numbers.contains(prefix_ + name) || content_->tensors.contains(prefix_ + name);
}

bool StateReader::empty() const {
  const auto none = [this](const auto& entries) {
    const auto it = entries.lower_bound(prefix_);
    return it == entries.end() || !it->first.starts_with(prefix_);
  };
  return none(content_->numbers) && none(content_->tensors);
}

double StateReader::number(const std::string& name, double default_value) {
  if (const auto node = content_->numbers.extract(prefix_ + name)) return node.mapped();
  content_->errors += concat("\n  missing: ", prefix_, name);
  return default_value;
}

double StateReader::rate(const std::string& name) {
  const double v = number(name);
  if (!(v >= 0 && std::isfinite(v))) add_error(name, concat("expected a finite number from 0 on, got ", v));
  return v;
}

int64_t StateReader::count(const std::string& name, int64_t min) {
  const double v = number(name, double(min));
  if (v >= double(min) && v < 0x1p53 && v == std::trunc(v)) return int64_t(v);
  add_error(name, concat("expected a whole number from ", min, " on, got ", v));
  return min;
}

Tensor StateReader::tensor(const std::string& name, const Shape& shape, const TensorOptions& options) {
  const auto node = content_->tensors.extract(prefix_ + name);
  if (!node) return content_->errors += concat("\n  missing: ", prefix_, name), Tensor();
  const Tensor given = node.mapped(), copy = gradus::empty(shape, options);
  const bool fits = given.defined() && given.shape() == shape;
  if (fits && is_floating(given.dtype()) == is_floating(copy.dtype())) return raw::copy_(copy, given), copy;
  add_error(name, concat("expected ", fits ? "a dtype like that of " : "the shape of ", describe(copy),
                         ", got ", describe(given)));
  return {};
}

void StateReader::add_error(const std::string& name, const std::string& text) {
  content_->errors += concat("\n  ", prefix_, name, ": ", text);
}

void StateReader::on_success(std::function<void()> f) { content_->on_success.push_back(std::move(f)); }

void StateReader::check(const std::string& what) const {
  std::string errors = content_->errors;
  for (const auto& [name, v] : content_->numbers) errors += concat("\n  unexpected: ", name, " = ", v);
  for (const auto& [name, t] : content_->tensors) errors += "\n  unexpected: " + name;
  if (!errors.empty()) throw ValueError("load_state_dict", "the state does not fit ", what, ':', errors);
}

void StateReader::finish(const std::string& what) {
  check(what);
  for (const auto& f : content_->on_success) f();
}

}  // namespace gradus::optim
