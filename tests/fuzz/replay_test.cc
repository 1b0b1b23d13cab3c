// Replays the seeds of a fuzz target, and GRADUS_VARIATIONS random variations of them, the same ones in each
// run. A failed check aborts the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "gradus/tests/fuzz/fuzz.h"

namespace gradus::fuzz {
namespace {

void run(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// Returns the input with a few bytes replaced, inserted, erased, repeated or cut off.
std::string varied(std::string input, std::mt19937& random) {
  for (unsigned n = 1 + random() % 4; n > 0 && !input.empty(); --n) {
    const size_t at = random() % input.size(), count = 1 + random() % std::min<size_t>(8, input.size() - at);
    switch (random() % 6) {
      case 0:
        input[at] = static_cast<char>(random());
        break;
      case 1:
        input[at] = static_cast<char>(input[at] ^ (1 << random() % 8));
        break;
      case 2:
        input.insert(at, count, static_cast<char>(random() % 3 - 1));
        break;
      case 3:
        input.erase(at, count);
        break;
      case 4:
        input.insert(at, input.substr(at, count));
        break;
      case 5:
        if (random() % 4 == 0) input.resize(at);
        break;
    }
  }
  return input;
}

TEST(FuzzTest, SeedsRunThrough) {
  const std::vector<std::string> all = seeds();
  ASSERT_FALSE(all.empty());
  run("");
  for (const std::string& seed : all) run(seed);
}

TEST(FuzzTest, SoDoVariationsOfThem) {
  const std::vector<std::string> all = seeds();
  std::mt19937 random(20);
  for (int i = 0; i < GRADUS_VARIATIONS; ++i) run(varied(all[random() % all.size()], random));
}

}  // namespace
}  // namespace gradus::fuzz
