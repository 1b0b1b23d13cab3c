// read_environment: rank, world size and addresses from the variables of torchrun, Slurm, MPI and Kubernetes,
// and from Gradus' own; errors name malformed variables. Tests pass maps of variables instead of the
// environment.
#include "gradus/tensor/runtime/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "gradus/tensor/base/error.h"

namespace gradus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

std::optional<Environment> read(const Variables& variables) {
  return read_environment([&](const char* name) {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    read(variables);
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Environment, WithoutAnythingThereIsNoJob) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"MASTER_ADDR", "host"}, {"MASTER_PORT", "1234"}}));
  EXPECT_FALSE(read({{"JOB_COMPLETION_INDEX", "3"}}));  // an indexed job that is not distributed
  EXPECT_FALSE(read({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}}));
}

TEST(Environment, TorchrunsVariablesAreUnderstood) {
  const Environment e = *read({{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"GROUP_RANK", "1"},
                               {"MASTER_ADDR", "first.example"},
                               {"MASTER_PORT", "1234"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"TORCHELASTIC_MAX_RESTARTS", "3"},
                               {"TORCHELASTIC_RUN_ID", "my run"},
                               {"TORCHELASTIC_ERROR_FILE", "/a folder/error.json"}});
  EXPECT_EQ(e.source, "RANK");
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.node, 1);
  EXPECT_EQ(e.master_addr, "first.example");
  EXPECT_EQ(e.master_port, 1234);
  EXPECT_EQ(e.restart_count, 2);
  EXPECT_EQ(e.max_restarts, 3);
  EXPECT_TRUE(e.master_port_is_set);
  EXPECT_FALSE(e.torchrun_store);
  EXPECT_EQ(e.job_id, "my run");
  EXPECT_EQ(e.error_file, "/a folder/error.json");
  EXPECT_EQ(e.store, "");
  EXPECT_EQ(e.token, "");
}

TEST(Environment, RankAndWorldSizeAreEnough) {
  const Environment e = *read({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(e.local_rank, -1);
  EXPECT_EQ(e.local_world_size, -1);
  EXPECT_EQ(e.node, -1);
  EXPECT_EQ(e.master_addr, "");
  EXPECT_EQ(e.master_port, 29500);
  EXPECT_FALSE(e.master_port_is_set);
  EXPECT_EQ(e.job_id, "none");
}

TEST(Environment, TorchrunsStoreIsThereWhenItSaysSoAndNoLauncherOfOursDoes) {
  std::map<std::string, std::string> v = {
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_TRUE(read(v)->torchrun_store);
  v["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_FALSE(read(v)->torchrun_store);
  v["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  v["GRADUS_STORE"] = "127.0.0.1:1";
  EXPECT_FALSE(read(v)->torchrun_store);
}

TEST(Environment, GradusOwnVariablesComeFirst) {
  const Environment e = *read({{"RANK", "0"},
                               {"WORLD_SIZE", "2"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_ERROR_FILE", "/theirs"},
                               {"GRADUS_JOB_ID", "job-1"},
                               {"GRADUS_TOKEN", "secret"},
                               {"GRADUS_STORE", "[::1]:4000"},
                               {"GRADUS_ERROR_FILE", "/ours"}});
  EXPECT_EQ(e.job_id, "job-1");
  EXPECT_EQ(e.token, "secret");
  EXPECT_EQ(e.store, "[::1]:4000");
  EXPECT_EQ(e.error_file, "/ours");
}

const Variables kSlurm = {{"SLURM_JOB_ID", "123456"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "3"},
                          {"SLURM_STEP_NODELIST", "node[003-005,009]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};

TEST(Environment, SlurmsVariablesAreUnderstood) {
  const Environment e = *read(kSlurm);
  EXPECT_EQ(e.source, "Slurm");
  EXPECT_EQ(e.rank, 6);
  EXPECT_EQ(e.world_size, 7);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.local_world_size, 1);
  EXPECT_EQ(e.node, 3);
  EXPECT_EQ(e.master_addr, "node003");
  EXPECT_EQ(e.master_port, 15000 + 123456 % 10000);
  EXPECT_EQ(e.job_id, "slurm-123456-2");
}

TEST(Environment, WhatTheUserSaysComesBeforeWhatSlurmSays) {
  Variables v = kSlurm;
  v["MASTER_ADDR"] = "chosen";
  v["MASTER_PORT"] = "4242";
  v["SLURM_STEP_NUM_TASKS"] = "8";  // the step's tasks; SLURM_NTASKS are the job's
  const Environment e = *read(v);
  EXPECT_EQ(e.master_addr, "chosen");
  EXPECT_EQ(e.master_port, 4242);
  EXPECT_EQ(e.world_size, 8);
}

TEST(Environment, ASlurmStepOnOneNodeNeedsNoAddress) {
  const Environment e = *read({{"SLURM_PROCID", "1"},
                               {"SLURM_NTASKS", "2"},
                               {"SLURM_LOCALID", "1"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_TASKS_PER_NODE", "2"},
                               {"SLURM_JOB_NODELIST", "n1"}});
  EXPECT_EQ(e.local_world_size, 2);
  EXPECT_EQ(e.master_addr, "127.0.0.1");
}

TEST(Environment, ABatchScriptIsNoRank) {
  Variables v{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "1"}, {"ENVIRONMENT", "BATCH"}};
  EXPECT_FALSE(read(v));
  v["SLURM_STEP_ID"] = "0";  // a task that srun started in the batch script
  EXPECT_TRUE(read(v));
}

TEST(Environment, MpiVariablesAreUnderstood) {
  const Environment open_mpi = *read({{"OMPI_COMM_WORLD_RANK", "3"},
                                      {"OMPI_COMM_WORLD_SIZE", "4"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                      {"PMIX_NAMESPACE", "prterun-1"}});
  EXPECT_EQ(open_mpi.source, "Open MPI");
  EXPECT_EQ(open_mpi.rank, 3);
  EXPECT_EQ(open_mpi.world_size, 4);
  EXPECT_EQ(open_mpi.local_rank, 1);
  EXPECT_EQ(open_mpi.local_world_size, 2);
  EXPECT_EQ(open_mpi.master_addr, "");
  EXPECT_EQ(open_mpi.job_id, "prterun-1");

  const Environment pmi =
      *read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(pmi.source, "PMI");
  EXPECT_EQ(pmi.rank, 1);
  EXPECT_EQ(pmi.local_world_size, 2);
  EXPECT_EQ(pmi.master_addr, "127.0.0.1");
}

TEST(Environment, KubernetesIndexedJobsAreUnderstood) {
  const Environment e =
      *read({{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-0.job"}});
  EXPECT_EQ(e.source, "Kubernetes");
  EXPECT_EQ(e.rank, 2);
  EXPECT_EQ(e.world_size, 3);
  EXPECT_EQ(e.local_rank, 0);
  EXPECT_EQ(e.local_world_size, 1);
  EXPECT_EQ(e.node, 2);
  EXPECT_EQ(e.master_addr, "job-0.job");
}

TEST(Environment, HalfOfItIsAnError) {
  EXPECT_EQ(error_of({{"RANK", "0"}}), "[environment] RANK is set but WORLD_SIZE is not");
  EXPECT_EQ(error_of({{"WORLD_SIZE", "2"}}), "[environment] WORLD_SIZE is set but RANK is not");
  EXPECT_EQ(error_of({{"RANK", ""}, {"WORLD_SIZE", "2"}}), "[environment] WORLD_SIZE is set but RANK is not");
}

TEST(Environment, MalformedValuesAreNamed) {
  const auto with = [](const char* name, const std::string& value) {
    Variables v{{"RANK", "1"}, {"WORLD_SIZE", "4"}};
    v[name] = value;
    return error_of(v);
  };
  EXPECT_EQ(with("RANK", "one"), "[environment] RANK is 'one', not a number between 0 and 999999");
  EXPECT_EQ(with("RANK", "4"), "[environment] RANK is 4, but WORLD_SIZE is 4");
  for (const char* bad : {"-1", "1x", " 1", "1.0", "0x1", "99999999999999999999", "+1"}) {
    EXPECT_THAT(with("RANK", bad), HasSubstr(concat("RANK is '", bad, "'")));
    EXPECT_THAT(with("WORLD_SIZE", bad), HasSubstr(concat("WORLD_SIZE is '", bad, "'")));
    EXPECT_THAT(with("MASTER_PORT", bad), HasSubstr(concat("MASTER_PORT is '", bad, "'")));
    EXPECT_THAT(with("LOCAL_RANK", bad), HasSubstr(concat("LOCAL_RANK is '", bad, "'")));
  }
  EXPECT_THAT(with("WORLD_SIZE", "0"), HasSubstr("WORLD_SIZE is '0'"));
  EXPECT_THAT(with("MASTER_PORT", "0"), HasSubstr("not a number between 1 and 65535"));
  EXPECT_THAT(with("MASTER_PORT", "65536"), HasSubstr("not a number between 1 and 65535"));
  EXPECT_THAT(with("LOCAL_RANK", "2"), HasSubstr("LOCAL_RANK is 2, but RANK is 1"));
  EXPECT_THAT(with("LOCAL_WORLD_SIZE", "5"), HasSubstr("5 ranks on this node, but WORLD_SIZE is 4"));
  EXPECT_THAT(with("MASTER_ADDR", "a\nb"), HasSubstr("MASTER_ADDR has control characters"));
  EXPECT_THAT(with("GRADUS_TOKEN", std::string(5000, 'x')), HasSubstr("GRADUS_TOKEN has 5000 bytes"));
  for (const char* bad : {"host", "host:", ":1", "host:0", "host:70000", "host:12x"})
    EXPECT_THAT(with("GRADUS_STORE", bad), HasSubstr("not host:port")) << bad;
  EXPECT_LT(with("RANK", std::string(1 << 20, '1')).size(), 200u);  // long values are cut
  EXPECT_THAT(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "1"}}),
              HasSubstr("LOCAL_RANK is 1, but there are 1 ranks on this node"));
}

TEST(Environment, MalformedSlurmValuesAreNamed) {
  for (const char* bad : {"x", "2(", "2(x", "2(x3", "2(3)", "2,", "0", "2(x0),1", "2;1"}) {
    Variables v = kSlurm;
    v["SLURM_STEP_TASKS_PER_NODE"] = bad;
    EXPECT_THAT(error_of(v), AllOf(HasSubstr("SLURM_STEP_TASKS_PER_NODE"), HasSubstr("2(x3),1"))) << bad;
  }
  Variables v = kSlurm;
  v["SLURM_JOB_ID"] = "abc";
  EXPECT_THAT(error_of(v), HasSubstr("SLURM_JOB_ID is 'abc'"));
}

TEST(Environment, TheFirstHostOfASlurmList) {
  EXPECT_EQ(first_slurm_host("node7"), "node7");
  EXPECT_EQ(first_slurm_host("a.example.org,b"), "a.example.org");
  EXPECT_EQ(first_slurm_host("node[003-005,009]"), "node003");
  EXPECT_EQ(first_slurm_host("node[12]"), "node12");
  EXPECT_EQ(first_slurm_host("n[5,7]-ib,m[1-2]"), "n5-ib");
  EXPECT_EQ(first_slurm_host("rack[0-3]node[08-15]"), "rack0node08");
  for (const char* bad :
       {"", ",a", "node[", "node[]", "node[1", "node[a-b]", "node[-1]", "no de", "a;b", "a]", "[1"})
    EXPECT_THROW(first_slurm_host(bad), ValueError) << bad;
  EXPECT_THROW(first_slurm_host(std::string(300, 'a')), ValueError);
}

}  // namespace
}  // namespace gradus
