// The list of recipes, and their lookup by name.
#include "gradus/examples/gans/recipe.h"

namespace gradus::examples {
namespace {

const std::vector<const Recipe*>& all() {
  static const std::vector<const Recipe*> recipes = {&kDcgan, &kLsgan, &kWganGp, &kPggan};
  return recipes;
}

}  // namespace

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
