// Fuzzes convolutions and matrix products for wrong numbers and accesses out of bounds: random shapes, at
// each instruction set of this processor (GRADUS_CPU), with memory beside an unreadable page (GRADUS_GUARD),
// against sums in f64. With --layouts: operands of random strides, against the same op on contiguous copies.
// Exits with 1 if anything is wrong, with the command that repeats each case.
//
//   tools/fuzz-conv.sh --cases 50000
//   tools/fuzz-conv.sh --seconds 600 --cpu avx2
//   tools/fuzz-conv.sh --layouts --cases 50000
//   tools/fuzz-conv.sh --seed 7 --cpu avx2 --guard before --first 1234 --cases 1     one case again
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "gradus/tensor/runtime/processor.h"
#include "gradus/tests/kernels/conv_cases.h"
#include "gradus/tests/kernels/layout_cases.h"

namespace {

using gradus::kerneltest::ConvCase;
using gradus::kerneltest::LayoutCase;

// Shared by a worker process and its parent, which reports the case if a fault ends the worker.
struct Progress {
  uint64_t next, done, wrong;
  char text[1000];
};

struct Search {
  std::string level, guard;
  bool layouts = false;
  uint64_t seed = 0, first = 0, cases = 0;
  std::chrono::steady_clock::time_point end;
};

uint64_t seed_of(const Search& s, uint64_t id) { return s.seed * 0x9e3779b97f4a7c15 + id; }

// Prints the command that repeats one case.
void print_again(const Search& s, uint64_t id) {
  std::printf("  again: tools/fuzz-conv.sh%s --cpu %s --guard %s --seed %llu --first %llu --cases 1\n",
              s.layouts ? " --layouts" : "", s.level.c_str(), s.guard.c_str(), (unsigned long long)s.seed,
              (unsigned long long)id);
}

// Runs cases until the search ends, in a process of its own because kernels read these variables once.
template <class Case> void work(const Search& s, Progress& progress) {
  setenv("GRADUS_CPU", s.level.c_str(), 1);
  setenv("GRADUS_GUARD", s.guard.c_str(), 1);
  for (; progress.next < s.first + s.cases && std::chrono::steady_clock::now() < s.end; ++progress.next) {
    const Case one(seed_of(s, progress.next));
    std::snprintf(progress.text, sizeof(progress.text), "%s", one.text().c_str());
    std::string wrong;
    try {
      wrong = one.wrong();
    } catch (const std::exception& e) {
      wrong = std::string("  ") + e.what() + "\n";
    }
    ++progress.done;
    if (wrong.empty()) continue;
    ++progress.wrong;
    std::printf("%s, guard %s: %s\n%s", s.level.c_str(), s.guard.c_str(), progress.text, wrong.c_str());
    print_again(s, progress.next);
    std::fflush(stdout);
  }
}

// Returns whether nothing was found.
bool run(const Search& s) {
  void* shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return std::perror("fuzz_conv: mmap"), false;
  Progress& progress = *new (shared) Progress{};
  progress.next = s.first;
  uint64_t faults = 0;
  while (progress.next < s.first + s.cases && std::chrono::steady_clock::now() < s.end) {
    std::fflush(stdout);
    const pid_t worker = fork();
    if (worker < 0) return std::perror("fuzz_conv: fork"), false;
    if (worker == 0) {
      s.layouts ? work<LayoutCase>(s, progress) : work<ConvCase>(s, progress);
      std::fflush(stdout);
      _exit(0);
    }
    int status = 0;
    if (waitpid(worker, &status, 0) < 0) return std::perror("fuzz_conv: waitpid"), false;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
    ++faults;
    std::printf("%s, guard %s: %s\n  ended by %s\n", s.level.c_str(), s.guard.c_str(), progress.text,
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an exit");
    print_again(s, progress.next);
    ++progress.next, ++progress.done;
  }
  std::printf("%-11s guard %-6s %8llu cases, %llu wrong, %llu faults\n", s.level.c_str(), s.guard.c_str(),
              (unsigned long long)progress.done, (unsigned long long)progress.wrong,
              (unsigned long long)faults);
  const bool clean = progress.wrong == 0 && faults == 0;
  munmap(shared, sizeof(Progress));
  return clean;
}

}  // namespace

int main(int argc, char** argv) {
  using gradus::cpu::Level;
  uint64_t cases = 2000, seed = std::chrono::system_clock::now().time_since_epoch().count() % 1'000'000,
           first = 0;
  double seconds = 0;
  bool layouts = false;
  std::vector<std::string> levels, guards, all_levels;
  for (Level l = Level::kSse41; l <= gradus::cpu::processor_level(); l = Level(int(l) + 1))
    all_levels.emplace_back(name_of(l));
  CLI::App app(
      "Searches convolutions and matrix products for wrong numbers and accesses beyond their memory.");
  auto* number = app.add_option("--cases", cases, "for each level of processor")->capture_default_str();
  app.add_option("--seconds", seconds, "for all together, instead of --cases")
      ->excludes(number)
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--seed", seed, "another one finds other cases; random when not given");
  app.add_option("--first", first, "the number of the first case")->capture_default_str();
  app.add_option("--cpu", levels, "levels of processor; all that this one has when none is named")
      ->check(CLI::IsMember(all_levels));
  app.add_option("--guard", guards, "where the unreadable pages lie: after, before; both when none is named")
      ->check(CLI::IsMember({"after", "before"}));
  app.add_flag("--layouts", layouts, "operands of random strides instead, all products and convolutions");
  CLI11_PARSE(app, argc, argv);
  if (levels.empty()) levels = all_levels;
  if (guards.empty()) guards = {"after", "before"};

  std::printf("seed %llu\n", (unsigned long long)seed);
  bool clean = true;
  for (const std::string& level : levels)
    for (size_t i = 0; i < guards.size(); ++i) {
      Search s{.level = level,
               .guard = guards[i],
               .layouts = layouts,
               .seed = seed,
               .end = std::chrono::steady_clock::time_point::max()};
      if (seconds > 0) {
        s.end = std::chrono::steady_clock::now() +
                std::chrono::milliseconds(int64_t(1000 * seconds / double(levels.size() * guards.size())));
        s.first = first + (i << 40), s.cases = uint64_t{1} << 40;
      } else {  // each guard runs a part of them
        const uint64_t from = cases * i / guards.size();
        s.first = first + from, s.cases = cases * (i + 1) / guards.size() - from;
      }
      clean &= run(s);
    }
  return clean ? 0 : 1;
}
