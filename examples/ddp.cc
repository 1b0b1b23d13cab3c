// Demonstrates distributed programs: collectives, point-to-point messages, a ring all-reduce from messages,
// data-parallel training, its checkpoints, and models on two devices or on two ranks.
//
//   ./run ddp                                        4 processes of this machine
//   ./run ddp --nproc 2 --only ring
//   ./run ddp --backend local                        threads of one process instead
//   ./run gradus-run --nproc-per-node 2 bazel-bin/examples/ddp
//                                                    the same program, started from outside: also under
//                                                    torchrun, Slurm, Open MPI, Kubernetes
//
// Every demonstration checks its results: a wrong number on any rank ends the whole job with an error that
// names the rank.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/launch/launcher.h"
#include "gradus/examples/ddp_demos/demos.h"

using namespace gradus;

namespace {

struct Demo {
  std::string name;
  std::function<void()> run;  // on every rank
};

const std::vector<Demo>& demos() {
  static const std::vector<Demo> all = {
      {"collectives", examples::show_collectives},
      {"messages", examples::show_messages},
      {"ring", examples::show_ring},
      {"basic", examples::show_basic},
      {"checkpoint", examples::show_checkpoint},
      {"model-parallel", examples::show_model_parallel},
      {"remote", examples::show_remote},
  };
  return all;
}

struct Args {
  int nproc = 4;
  std::string backend = "gloo";
  std::vector<std::string> only;
};

Args parse(int argc, char** argv) {
  Args a;
  std::vector<std::string> names;
  for (const Demo& demo : demos()) names.push_back(demo.name);
  CLI::App app{"Shows what several processes do together"};
  app.add_option("--nproc", a.nproc, "ranks on this machine")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app.add_option("--backend", a.backend, "gloo: ranks are processes; local: threads of this process")
      ->capture_default_str()
      ->check(CLI::IsMember({"gloo", "local"}));
  app.add_option("--only", a.only, "run only these demonstrations")->check(CLI::IsMember(names));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    std::exit(app.exit(e) == 0 ? 0 : 2);
  }
  return a;
}

void run(const Args& args) {
  if (dist::get_rank() == 0)
    std::cout << dist::get_world_size() << " ranks, backend " << dist::get_backend() << std::endl;
  for (const Demo& demo : demos())
    if (args.only.empty() || std::find(args.only.begin(), args.only.end(), demo.name) != args.only.end())
      demo.run();
  if (dist::get_rank() == 0) std::cout << "\nAll results are right on all ranks." << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  const Args args = parse(argc, argv);
  try {
    return dist::launcher({.nproc_per_node = args.nproc, .backend = args.backend}, [&] { run(args); });
  } catch (const std::exception& e) {
    std::cerr << "ddp: " << e.what() << std::endl;
    return 1;
  }
}
