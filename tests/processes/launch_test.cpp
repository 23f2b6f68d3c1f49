// The variables of every launcher, and the errors for wrong and incomplete sets.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sharding/runtime/launcher_environment.h"
#include "tests/sharding/expect_error.h"

namespace tessera::launch_test {
namespace {

using Variables = std::map<std::string, std::string>;

detail::Launch read(const Variables& variables) {
  return detail::launch_of([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

struct LaunchCase {
  const char* what;
  Variables variables;
  int index, count;
  const char* launcher;
  const char* host = "127.0.0.1";
  int port = 0;  // 0: derived
};

const Variables torchrun{{"RANK", "3"},           {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}};

Variables both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

Variables on_nodes(const char* list) {
  return {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NODELIST", list}};
}

TEST(FromEnvironment, ReadsEveryLauncher) {
  const Variables slurm_step{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}};
  const Variables slurm_batch{{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  const Variables pmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
  const Variables address{{"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}};
  const Variables two_of_three{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Variables job{{"SLURM_JOB_ID", "17"}, {"SLURM_JOB_NODELIST", "a[07-09],b1"}};
  const std::vector<LaunchCase> cases{
      {"nothing", {}, 0, 1, "", ""},
      {"empty values", {{"RANK", ""}, {"PMI_RANK", ""}}, 0, 1, "", ""},
      {"torchrun", torchrun, 3, 4, "torchrun", "node", 29500},
      {"torchrun of one", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0, 1, "torchrun", ""},
      {"a master's address alone", {{"MASTER_ADDR", "node"}}, 0, 1, "", ""},
      {"OpenMPI", open_mpi, 2, 3, "OpenMPI"},
      {"OpenMPI on two machines", both(open_mpi, both(two_of_three, address)), 2, 3, "OpenMPI", "node", 29500},
      {"OpenMPI in a job of Slurm", both(open_mpi, both(two_of_three, job)), 2, 3, "OpenMPI", "a07"},
      {"PMI", pmi, 1, 2, "PMI"},
      {"PMI with an address", both(pmi, address), 1, 2, "PMI", "node", 29500},
      {"PMI on one machine in a job of Slurm", both(pmi, both({{"MPI_LOCALNRANKS", "2"}}, job)), 1, 2, "PMI"},
      {"Slurm's srun", slurm_step, 5, 8, "Slurm"},
      {"Slurm's srun with an address", both(slurm_step, address), 5, 8, "Slurm", "node", 29500},
      {"Slurm on one node", on_nodes("login"), 5, 8, "Slurm", "login"},
      {"Slurm on nodes", on_nodes("a,b"), 5, 8, "Slurm", "a"},
      {"Slurm on a range of nodes", on_nodes("rack-[03-05,9],b[1-2]"), 5, 8, "Slurm", "rack-03"},
      {"Slurm on listed nodes", on_nodes("n[12,14]-ib"), 5, 8, "Slurm", "n12-ib"},
      {"Slurm without its step's list", both(slurm_step, job), 5, 8, "Slurm", "a07"},
      {"a batch script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1, "", ""},
      {"a batch script that is a step", slurm_batch, 0, 1, "", ""},
      {"mpiexec within Slurm", both(pmi, slurm_step), 1, 2, "PMI"},
      {"mpirun within Slurm", both(open_mpi, slurm_step), 2, 3, "OpenMPI"},
      {"torchrun within Slurm", both(torchrun, slurm_step), 3, 4, "torchrun", "node", 29500},
  };
  for (const LaunchCase& c : cases) {
    SCOPED_TRACE(c.what);
    const detail::Launch launch = read(c.variables);
    EXPECT_EQ(launch.index, c.index);
    EXPECT_EQ(launch.count, c.count);
    EXPECT_EQ(launch.launcher, c.launcher);
    EXPECT_EQ(launch.host, c.host);
    if (c.port != 0 || c.count == 1)
      EXPECT_EQ(launch.port, c.port);
    else
      EXPECT_TRUE(launch.port >= 20000 && launch.port < 32000) << launch.port;
  }
}

// Different runs on one machine get different ports; all processes of a run get the same.
TEST(FromEnvironment, APortFollowsFromTheJob) {
  const auto port = [](const char* job, const char* step, const char* rank) {
    return read({{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}, {"SLURM_PROCID", rank}, {"SLURM_NTASKS", "4"}}).port;
  };
  EXPECT_EQ(port("17", "0", "0"), port("17", "0", "3"));
  EXPECT_NE(port("17", "0", "0"), port("17", "1", "0"));
  EXPECT_NE(port("17", "0", "0"), port("18", "0", "0"));
  const Variables pmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(read(pmi).port, read(pmi).port);
}

// The job is equal in all processes of a run, and empty if no variable names it.
TEST(FromEnvironment, ReadsTheJob) {
  const auto job = [](const Variables& launcher, const Variables& more) { return read(both(launcher, more)).job; };
  const Variables address{{"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}};
  const Variables pmi = both({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, address);
  const Variables other = both({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, address);
  EXPECT_EQ(job(torchrun, {}), "");
  EXPECT_EQ(job(torchrun, {{"TORCHELASTIC_RUN_ID", "none"}}), "");
  EXPECT_NE(job(torchrun, {{"TORCHELASTIC_RUN_ID", "7"}}), "");
  EXPECT_NE(job(torchrun, {{"TORCHELASTIC_RUN_ID", "7"}}), job(torchrun, {{"TORCHELASTIC_RUN_ID", "8"}}));
  EXPECT_EQ(job(pmi, {}), "");
  EXPECT_EQ(job(pmi, {{"PMI_JOBID", "a"}}), job(other, {{"PMI_JOBID", "a"}}));
  EXPECT_NE(job(pmi, {{"PMI_JOBID", "a"}}), job(pmi, {{"PMI_JOBID", "b"}}));
  EXPECT_NE(job(on_nodes("a"), {{"SLURM_JOB_ID", "17"}}), job(on_nodes("a"), {{"SLURM_JOB_ID", "18"}}));
}

TEST(FromEnvironment, NamesMissingVariables) {
  const std::vector<std::pair<Variables, std::string>> cases{
      {on_nodes(",9],login1"),
       "[initialize] Slurm's list of machines \",9],login1\" begins with no name. Set MASTER_ADDR and MASTER_PORT to "
       "the "
       "machine of process 0 and a port that is free there."},
      {{{"RANK", "1"}},
       "[initialize] torchrun sets RANK, WORLD_SIZE; here is RANK=1, and WORLD_SIZE is missing. Start the program with "
       "its launcher, set what is missing, or unset the rest."},
      {{{"LOCAL_RANK", "1"}},
       "[initialize] torchrun sets RANK, WORLD_SIZE; here is LOCAL_RANK=1, and RANK, WORLD_SIZE are missing. Start the "
       "program with its launcher, set what is missing, or unset the rest."},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node"}},
       "[initialize] torchrun sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; here is RANK=1, WORLD_SIZE=2, "
       "MASTER_ADDR=node, and MASTER_PORT is missing. Start the program with its launcher, set what is missing, or "
       "unset the rest."},
      {{{"PMI_SIZE", "2"}},
       "[initialize] PMI sets PMI_RANK, PMI_SIZE; here is PMI_SIZE=2, and PMI_RANK is missing. Start the program with "
       "its launcher, set what is missing, or unset the rest."},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}},
       "[initialize] Slurm sets SLURM_PROCID, SLURM_NTASKS; here is SLURM_NTASKS=2, and SLURM_PROCID is missing. Start "
       "the program with its launcher, set what is missing, or unset the rest."},
      {{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "two"}},
       "[initialize] OpenMPI's OMPI_COMM_WORLD_SIZE=\"two\", expected a number. Start the program with its launcher, "
       "or unset the variable."},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_PORT", "29500"}},
       "[initialize] MASTER_PORT is set, and MASTER_ADDR is missing. Set both, to where process 0 can be reached, or "
       "unset both."},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_PORT", "http"}, {"MASTER_ADDR", "node"}},
       "[initialize] MASTER_PORT=\"http\", expected a number from 1 to 65535. Set it to a port that is free on the "
       "machine of process 0."},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "[initialize] OpenMPI reports that 2 of 4 processes are on this machine (OMPI_COMM_WORLD_LOCAL_SIZE), and "
       "MASTER_ADDR and MASTER_PORT are not set. Set them to the machine of process 0 and a port that is free there."},
      {{{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       "[initialize] torchrun's WORLD_SIZE=1, but PMI's PMI_SIZE=2. Unset the variables of the one that has not "
       "started the program."},
      {{{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}},
       "[initialize] PMI's PMI_RANK=2 and PMI_SIZE=2, expected a count from 1 to 1048576 and an index below it. Start "
       "the "
       "program with its launcher, or unset both."},
      {both({{"TORCHELASTIC_RESTART_COUNT", "x/y"}}, torchrun),
       "[initialize] TORCHELASTIC_RESTART_COUNT=\"x/y\", expected a number. Start the program with torchrun, or unset "
       "the "
       "variable."},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2147483647"}},
       "[initialize] PMI's PMI_RANK=0 and PMI_SIZE=2147483647, expected a count from 1 to 1048576 and an index below "
       "it. "
       "Start the program with its launcher, or unset both."},
  };
  for (const auto& [variables, message] : cases)
    EXPECT_EQ(testing::error_of(ErrorKind::invalid_argument, [&, &v = variables] { read(v); }), message);
}

}  // namespace
}  // namespace tessera::launch_test
