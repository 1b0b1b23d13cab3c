// Lists of actions as text, a line per rank: PipelineOptions::lists.
#include <algorithm>

#include "gradus/distributed/pipeline/schedule_check.h"
#include "gradus/distributed/pipeline/schedule_simulation.h"
#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// A ValueError is the other thing that may come of lists from outside.
template <class F> bool is_accepted(const F& f) {
  try {
    f();
    return true;
  } catch (const ValueError& e) {
    FUZZ_CHECK(std::string_view(e.what()).starts_with("["));
    return false;
  }
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      "0F0 0B0\n",       "0F0 0F1 1F0\n",         "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0\n",
      "99999999999F0\n", "999999999F999999999\n", "0F0 0B1000000000\n",
      "-1F0 0F-1\n",     "0F0\n\n\n0I0 0W0\n"};
  for (int s = 0; s < 8; ++s) {
    const bool is_v = dist::Schedule(s) == dist::Schedule::kZeroBubbleV;
    all.push_back(joined(dist::to_text(dist::make_schedule(
        dist::Schedule(s), {.ranks = 2, .stages_per_rank = is_v ? 2 : 1, .micro_batches = 3}))));
  }
  // Stages and micro-batches as large as their number allows.
  std::string large;
  for (int i = 0; i < 1000; ++i) large += std::to_string(i) + "F" + std::to_string(999 - i) + ' ';
  all.push_back(large);
  return all;
}

}  // namespace gradus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gradus;
  using namespace gradus::dist;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ActionLists lists;
  if (!fuzz::is_accepted([&] { lists = parse_schedule(fuzz::lines_of(text)); })) return 0;
  // An action has at least three letters.
  FUZZ_CHECK(lists.stages() <= int64_t(size) && lists.micro_batches <= int64_t(size));
  FUZZ_CHECK(parse_schedule(to_text(lists)) == lists);
  const bool can_run = fuzz::is_accepted([&] { check_schedule(lists); });
  if (can_run) check_schedule(forwards_of(lists));
  const std::vector<StageTimes> times(size_t(lists.stages()),
                                      StageTimes{.forward = 1, .input_gradient = 1, .weight_gradient = 1});
  FUZZ_CHECK(fuzz::is_accepted([&] { simulate(lists, times); }) == can_run);
  return 0;
}
