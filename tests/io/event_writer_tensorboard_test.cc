// TensorBoard reads what EventWriter writes. Where it is not installed, there is nothing to ask.
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "gradus/io/event_writer.h"
#include "gradus/tests/io/testing.h"

namespace gradus::io {
namespace {

TEST(EventWriter, TensorBoardReadsARunThatWasResumed) {
  Scratch dir;
  {
    EventWriter log(dir.dir());
    log.add_hparams({{"lr", 0.1}, {"model", "resnet18"}, {"amp", true}}, {"train/loss"});
    for (int step = 0; step < 8; ++step) log.add_scalar("train/loss", step / 4., step);
    log.add_image("samples", counted({6, 3, 4, 4}, DType::kU8), 2, {.nrow = 4});
    log.add_text("notes", "# A run", 0);
    Tensor weights = empty({1000});
    for (int i = 0; i < 1000; ++i) weights.ptr<float>()[i] = static_cast<float>(i - 500);
    log.add_histogram("weights", weights, 3);
    log.add_histogram("nothing", tensor({std::nanf("")}), 3);
  }
  // Killed while it wrote a record.
  std::ofstream(dir / dir.names().at(0), std::ios::app | std::ios::binary).write("\x20\0\0\0\0", 5);
  EventWriter log(dir.dir(), {.purge_step = 5});
  for (int step = 5; step < 10; ++step) log.add_scalar("train/loss", 100 + step / 4., step);
  log.close();

  const char* python = std::getenv("TENSORBOARD_PYTHON");
  const std::string command = std::string(python ? python : "python3") + " tests/io/golden/read_events.py '" +
                              dir.dir().string() + "'";
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  if (!python && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127))
    GTEST_SKIP() << "tensorboard is not installed";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gradus::io
