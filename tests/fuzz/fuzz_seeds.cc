// Lets libFuzzer programs write their seeds to the folder DIR if `--seeds=DIR` is their only argument.
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "gradus/tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--seeds=";
  if (*argc != 2 || !std::string_view((*argv)[1]).starts_with(kOption)) return 0;
  const std::string folder((*argv)[1] + kOption.size());
  int number = 0;
  for (const std::string& seed : gradus::fuzz::seeds())
    std::ofstream(folder + "/seed" + std::to_string(number++), std::ios::binary) << seed;
  std::exit(0);
}
