// Names of functions in backtraces: of this program, and in text and files that are no backtraces and no programs.
#include "gradus/distributed/launch/internal/symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "gradus/tests/distributed/subprocess.h"

namespace gradus::dist {

[[gnu::noinline]] int known_function(std::string text) { return int(text.size()); }

namespace {

using internal::with_symbols;
using testing::HasSubstr;

// The address of known_function in this program's file: without the address where it is loaded.
std::string frame(const std::string& file) {
  Dl_info info;
  void* const function = reinterpret_cast<void*>(known_function);
  EXPECT_NE(dladdr(function, &info), 0);
  char text[64];
  std::snprintf(
      text, sizeof text, "+0x%lx",
      static_cast<unsigned long>(static_cast<char*>(function) - static_cast<char*>(info.dli_fbase)) + 3);
  return "#7 " + file + text + "\n";
}

std::string program() { return std::filesystem::read_symlink("/proc/self/exe"); }

TEST(Symbols, AreThoseOfTheFile) {
  EXPECT_EQ(with_symbols(frame(program())), "#7 gradus::dist::known_function(std::string)+3 (" +
                                                std::filesystem::path(program()).filename().string() + ")\n");
}

TEST(Symbols, LeaveOtherLinesAlone) {
  for (const std::string line :
       {"File \"train.py\", line 3, in <module>", "# /bin/true+0x", "#0 /bin/true+0xfffffffffffffffff",
        "#0 /bin/true+0x10 ", "#0 relative+0x10", "#0 /no/such/file+0x10", "#0 /dev/zero+0x10",
        "#0 /tmp+0x10", "#0 /proc/self/mem+0x10", "#0+0x10", "#", ""})
    EXPECT_EQ(with_symbols(line + "\n"), line + "\n");
  EXPECT_EQ(with_symbols(""), "");
  TestFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(with_symbols("#0 " + folder / "pipe" + "+0x10\n"), "#0 " + folder / "pipe" + "+0x10\n");
}

// Symbol tables whose headers, offsets, sizes or bytes are wrong, and files that end early.
TEST(Symbols, OfMalformedFilesDoNoHarm) {
  const std::string whole = read_whole(program());
  Elf64_Ehdr header;
  ASSERT_GE(whole.size(), sizeof header);
  std::memcpy(&header, whole.data(), sizeof header);
  std::mt19937_64 random(1);
  TestFolder folder;
  const std::string file = folder / "program";
  for (int i = 0; i < 60; ++i) {
    std::string content = whole;
    if (i % 3 == 0) content.resize(random() % content.size());
    const size_t sections = size_t(header.e_shnum) * sizeof(Elf64_Shdr);
    for (int k = 0; k < 20; ++k) {
      const bool in_header = random() % 2;
      const size_t at = in_header ? 5 + random() % (sizeof header - 5) : header.e_shoff + random() % sections;
      if (at < content.size()) content[at] = char(random());
    }
    write_file(file, content);
    const std::string text = with_symbols(frame(file));
    EXPECT_THAT(text, testing::StartsWith("#7 ")) << i;
  }
  write_file(file, whole);
  EXPECT_THAT(with_symbols(frame(file)), HasSubstr("known_function"));
}

}  // namespace
}  // namespace gradus::dist
