#include <cstdio>

#include "gradus/tests/distributed/data_parallel/train_faults.h"

namespace gradus::dist {

Table::Table(std::vector<std::string> places) : places_(std::move(places)) {
  std::printf("%-34s %5s %6s %6s", "killed", "runs", "wrong", "kills");
  for (const std::string& place : places_) std::printf("  %*s", int(place.size()), place.c_str());
  std::printf(" %9s %10s\n", "restarts", "median, s");
}

void Table::repeat(const std::string& name, const FaultsOptions& options, const Repetition& once) {
  Figures f;
  int runs = 0, wrong = 0;
  for (int i = 0; i < options.repetitions; ++i) {
    const uint64_t seed = options.seed + uint64_t(i);
    const auto faults = once(i, Random(seed), f);
    if (!faults) continue;
    ++runs;
    wrong += !faults->empty();
    if (!faults->empty())
      std::fprintf(stderr, "%s, --seed %llu:\n", name.c_str(), static_cast<unsigned long long>(seed));
    for (const std::string& w : *faults) std::fprintf(stderr, "  %s\n", w.c_str());
  }
  print(name, runs, wrong, f);
  runs_ += runs, wrong_ += wrong;
  all_.kills += f.kills, all_.restarts += f.restarts;
  for (const auto& [place, count] : f.places) all_.places[place] += count;
  all_.seconds.insert(all_.seconds.end(), f.seconds.begin(), f.seconds.end());
}

void Table::print_sums() const { print("all", runs_, wrong_, all_); }

void Table::expect_all_places() {
  for (const std::string& place : places_) {
    if (all_.places[place] > 0) continue;
    std::fprintf(stderr, "no rank was killed %s\n", place.c_str());
    ++wrong_;
  }
}

void Table::print(const std::string& name, int runs, int wrong, const Figures& f) const {
  std::printf("%-34s %5d %6d %6d", name.c_str(), runs, wrong, f.kills);
  for (const std::string& place : places_)
    std::printf("  %*d", int(place.size()), f.places.contains(place) ? f.places.at(place) : 0);
  std::printf(" %9d %10.2f\n", f.restarts, median(f.seconds));
  std::fflush(stdout);
}

int Table::end() const {
  std::printf("%s\n", wrong_ ? "there were wrong runs" : "all right");
  return wrong_ ? 1 : 0;
}

}  // namespace gradus::dist
