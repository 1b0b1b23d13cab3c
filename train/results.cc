#include "gradus/train/results.h"

#include <sstream>

#include "gradus/tensor/base/error.h"

namespace gradus::training {

namespace internal {

void put(io::Checkpoint& c, const std::string& name, const Sums& s) {
  std::string names;
  for (const auto& [key, sum] : s.of) {
    names += key + '\n';
    c.put(concat(name, ".sum.", key), sum);
  }
  for (const auto& [key, count] : s.seen_of) c.put(concat(name, ".count.", key), count);
  c.put(name + ".seen", s.seen);
  c.put(name + ".names", names);  // in their order
}

Sums get_sums(const io::Checkpoint& c, const std::string& name) {
  Sums s{.seen = c.get<int64_t>(name + ".seen")};
  std::istringstream names(c.get<std::string>(name + ".names"));
  for (std::string key; std::getline(names, key);) {
    s.of.emplace_back(key, c.get<double>(concat(name, ".sum.", key)));
    if (const std::string count = concat(name, ".count.", key); c.contains(count))
      s.seen_of.emplace_back(key, c.get<int64_t>(count));
  }
  return s;
}

void put_history(io::Checkpoint& c, const std::vector<EpochResult>& history) {
  c.put("history.size", int64_t(history.size()));
  for (size_t i = 0; i < history.size(); ++i) {
    const std::string name = concat("history.", i);
    c.put(name + ".epoch", history[i].epoch);
    put(c, name + ".train", history[i].train);
    put(c, name + ".test", history[i].test);
    c.put(name + ".seconds", history[i].seconds);
    c.put(name + ".images", history[i].images);
  }
}

std::vector<EpochResult> get_history(const io::Checkpoint& c) {
  std::vector<EpochResult> history;
  const int64_t size = c.get<int64_t>("history.size");
  for (int64_t i = 0; i < size; ++i) {  // the first missing entry throws: a file may claim any size
    const std::string name = concat("history.", i);
    history.push_back({.epoch = c.get<int64_t>(name + ".epoch"),
                       .train = get_sums(c, name + ".train"),
                       .test = get_sums(c, name + ".test"),
                       .seconds = c.get<double>(name + ".seconds"),
                       .images = c.contains(name + ".images") ? c.get<int64_t>(name + ".images") : 0});
  }
  return history;
}

}  // namespace internal
}  // namespace gradus::training
