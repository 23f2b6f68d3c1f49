// What every launcher's variables mean, and the error of every wrong or partial set.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sharding/error.h"
#include "sharding/processes.h"

namespace tessera {
namespace {

using Variables = std::map<std::string, std::string>;

ProcessesOptions read(const Variables& variables) {
  return from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

struct LaunchCase {
  const char* what;
  Variables variables;
  int index, count;
  const char* launcher;
};

const Variables torchrun{{"RANK", "3"},           {"WORLD_SIZE", "4"},
                         {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "node"}, {"MASTER_PORT", "29500"}};

Variables both(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST(FromEnvironment, ReadsEveryLauncher) {
  const Variables slurm_step{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}};
  const Variables slurm_batch{{"SLURM_STEP_ID", "4294967291"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}};
  const Variables pmi{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "3"}};
  const std::vector<LaunchCase> cases{
      {"nothing", {}, 0, 1, ""},
      {"empty values", {{"RANK", ""}, {"PMI_RANK", ""}}, 0, 1, ""},
      {"torchrun", torchrun, 3, 4, "torchrun"},
      {"torchrun of one", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, 0, 1, "torchrun"},
      {"a master's address alone", {{"MASTER_ADDR", "node"}}, 0, 1, ""},
      {"OpenMPI", open_mpi, 2, 3, "OpenMPI"},
      {"PMI", pmi, 1, 2, "PMI"},
      {"Slurm's srun", slurm_step, 5, 8, "Slurm"},
      {"a batch script", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, 0, 1, ""},
      {"a batch script that is a step", slurm_batch, 0, 1, ""},
      {"mpiexec within Slurm", both(pmi, slurm_step), 1, 2, "PMI"},
      {"mpirun within Slurm", both(open_mpi, slurm_step), 2, 3, "OpenMPI"},
      {"torchrun within Slurm", both(torchrun, slurm_step), 3, 4, "torchrun"},
  };
  for (const LaunchCase& c : cases) {
    SCOPED_TRACE(c.what);
    const ProcessesOptions options = read(c.variables);
    EXPECT_EQ(*options.index, c.index);
    EXPECT_EQ(*options.count, c.count);
    EXPECT_EQ(options.launcher, c.launcher);
  }
}

TEST(FromEnvironment, SaysWhatIsMissing) {
  const std::vector<std::pair<Variables, std::string>> cases{
      {{{"RANK", "1"}},
       "[initialize] torchrun sets RANK, WORLD_SIZE; here is RANK=1, and WORLD_SIZE is missing. Start the program with "
       "its "
       "launcher, set what is missing, or unset the rest."},
      {{{"LOCAL_RANK", "1"}},
       "[initialize] torchrun sets RANK, WORLD_SIZE; here is LOCAL_RANK=1, and RANK, WORLD_SIZE are missing. Start the "
       "program with its launcher, set what is missing, or unset the rest."},
      {{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node"}},
       "[initialize] torchrun sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; here is RANK=1, WORLD_SIZE=2, "
       "MASTER_ADDR=node, and MASTER_PORT is missing. Start the program with its launcher, set what is missing, or "
       "unset "
       "the rest."},
      {{{"PMI_SIZE", "2"}},
       "[initialize] PMI sets PMI_RANK, PMI_SIZE; here is PMI_SIZE=2, and PMI_RANK is missing. Start the program with "
       "its "
       "launcher, set what is missing, or unset the rest."},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "2"}},
       "[initialize] Slurm sets SLURM_PROCID, SLURM_NTASKS; here is SLURM_NTASKS=2, and SLURM_PROCID is missing. Start "
       "the "
       "program with its launcher, set what is missing, or unset the rest."},
      {{{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "two"}},
       "[initialize] OpenMPI's OMPI_COMM_WORLD_SIZE=\"two\", expected a number. Start the program with its launcher, "
       "or "
       "unset the variable."},
      {{{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}},
       "[initialize] PMI's PMI_RANK=2 and PMI_SIZE=2, expected a count from 1 and an index below it. Start the program "
       "with "
       "its launcher, or unset both."},
  };
  for (const auto& [variables, message] : cases) {
    try {
      read(variables);
      ADD_FAILURE() << "no error where expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
      EXPECT_EQ(error.kind(), ErrorKind::bad_argument);
    }
  }
}

}  // namespace
}  // namespace tessera
