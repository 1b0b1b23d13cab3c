// The list of recipes, their lookup by name, and the log of their steps.
#include "gradus/examples/gans/recipe.h"

namespace gradus::examples {
namespace {

const std::vector<const Recipe*>& all() {
  static const std::vector<const Recipe*> recipes = {&kDcgan,     &kLsgan, &kWganGp, &kPggan, &kStyleGan1,
                                                     &kStyleGan2, &kSngan, &kR3gan,  &kFlow};
  return recipes;
}

}  // namespace

Tensor GanStep::log(const std::string& name, const Tensor& value) {
  if (training) return training->log(name, value);
  logged.emplace_back(name, detach(value));
  return value;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe* r : all()) names.emplace_back(r->name);
  return names;
}

const Recipe& recipe(const std::string& name) {
  std::string names;
  for (const Recipe* r : all()) {
    if (r->name == name) return *r;
    names += std::string(names.empty() ? "" : ", ") + r->name;
  }
  throw ValueError("gan", "expected a model of ", names, ", got ", name);
}

}  // namespace gradus::examples
