#include "gradus/examples/support/run_options.h"

#include <CLI/CLI.hpp>
#include <cstdlib>

namespace gradus::examples {

CLI::Validator at_least(int64_t low) { return CLI::Range(low, int64_t{1} << 40); }

void add_run_options(CLI::App& app, RunOptions& o, const std::string& program) {
  const std::string file = "DIR/" + program + ".ckpt";
  app.add_option("--nproc", o.nproc, "ranks on this machine")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--max-restarts", o.max_restarts,
                 "times that ranks are started again after a failure; they go on from " + file)
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--epochs", o.epochs, "passes over the training images")
      ->capture_default_str()
      ->check(at_least(0));
  app.add_option("--seed", o.seed, "seed of all random numbers")->capture_default_str();
  app.add_option("-p,--log-interval,--print-freq", o.log_interval, "batches between two lines of the log")
      ->capture_default_str()
      ->check(at_least(1));
  app.add_flag("--dry-run", o.dry_run, "one training step and one test step only");
  app.add_option("-j,--workers", o.workers, "threads of each rank that prepare batches ahead")
      ->capture_default_str()
      ->check(CLI::Range(0, 256));
  app.add_option("--threads", o.threads, "threads of each rank that compute [its share of the cores]")
      ->check(CLI::Range(1, 4096));
  app.add_option("--resume", o.resume, "continue from this checkpoint")->type_name("FILE");
  app.add_option("--checkpoint-dir", o.checkpoint_dir, "write " + file + " after every epoch")
      ->type_name("DIR");
  app.add_option("--checkpoint-interval", o.checkpoint_interval, "write it also every K batches")
      ->type_name("K")
      ->check(at_least(1));
  app.add_option("--summary", o.summary, "write the results as JSON")->type_name("FILE");
  app.add_option("--tensorboard", o.tensorboard, "write event files for TensorBoard")->type_name("DIR");
  app.add_option("--sample-log", o.sample_log, "write which images each step used")->type_name("FILE");
}

void parse_or_exit(CLI::App& app, RunOptions& options, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  for (const CLI::Option* o : app.get_options()) {
    const std::string name = o->get_single_name();
    if (name == "help") continue;
    std::string given;
    for (const std::string& part : o->results()) given += (given.empty() ? "" : " ") + part;
    options.values.emplace_back(name, o->count() > 0 ? given : o->get_default_str());
  }
}

}  // namespace gradus::examples
