// The progress bar on pseudoterminals of several widths.
#include "gradus/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <vector>

namespace gradus::training {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Returns the lines that a bar in a child process draws on a pseudoterminal with `columns` columns, without
// control sequences.
std::vector<std::string> drawn(int columns, const std::string& figures) {
  winsize size{};
  size.ws_col = static_cast<unsigned short>(columns), size.ws_row = 24;
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    Progress bar({.title = "Epoch 3/14", .total = 1000});
    bar.update(420, figures);
    bar.finish(figures);
    _exit(0);
  }
  std::string all;
  char part[4096];
  for (ssize_t n; (n = read(terminal, part, sizeof part)) > 0;) all.append(part, size_t(n));
  close(terminal);
  waitpid(child, nullptr, 0);
  std::vector<std::string> lines;
  std::istringstream in(all);
  for (std::string line; std::getline(in, line, '\r');)
    if (const size_t end = line.find("\033[K"); end != std::string::npos)
      lines.push_back(line.substr(0, end));
  return lines;
}

TEST(Progress, FitsTheTerminal) {
  const std::string figures = "loss 0.1234  accuracy 97.12 %  grad_norm 1.234";
  for (int columns = 1; columns <= 200; columns += columns < 60 ? 1 : 20) {
    const std::vector<std::string> lines = drawn(columns, figures);
    ASSERT_EQ(lines.size(), 2u) << columns;
    for (const std::string& line : lines) EXPECT_LT(line.size(), size_t(columns)) << line;
  }
}

TEST(Progress, LeavesOutWhatHasNoRoom) {
  const std::string figures = "loss 0.1234  accuracy 97.12 %";
  EXPECT_THAT(drawn(120, figures)[0], AllOf(HasSubstr("Epoch 3/14  42 % [####"), HasSubstr(figures),
                                            HasSubstr("images/s"), HasSubstr("ETA")));
  EXPECT_THAT(drawn(60, figures)[0], AllOf(HasSubstr("Epoch 3/14  42 %"), HasSubstr(figures),
                                           Not(HasSubstr("images/s")), HasSubstr("ETA")));
  EXPECT_THAT(drawn(40, figures)[0], AllOf(HasSubstr("Epoch 3/14  42 %"), HasSubstr("  loss 0.1234  ETA")));
}

}  // namespace
}  // namespace gradus::training
