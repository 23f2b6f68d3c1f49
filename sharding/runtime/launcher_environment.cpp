// The table of launchers and their variables.
#include "sharding/runtime/launcher_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::detail {
namespace {

// A launcher and its variables. It is detected if one of its signs is set; then its other variables must be set, too.
struct Launcher {
  const char* name;
  std::vector<const char*> signs;  // a launcher that sets any of these is detected
  const char* index;
  const char* count;
  std::vector<const char*> jobs;  // together they distinguish two runs on one machine
  const char* on_machine;         // the number of processes on this machine
  const char* nodes;              // the list of machines; if "", MASTER_ADDR and MASTER_PORT are required
};

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all{
      {"torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, "RANK", "WORLD_SIZE", {"TORCHELASTIC_RUN_ID"}, "", ""},
      {"OpenMPI",
       {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       "OMPI_COMM_WORLD_RANK",
       "OMPI_COMM_WORLD_SIZE",
       {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
       "OMPI_COMM_WORLD_LOCAL_SIZE",
       "SLURM_JOB_NODELIST"},
      {"PMI", {"PMI_RANK", "PMI_SIZE"}, "PMI_RANK", "PMI_SIZE", {"PMI_JOBID"}, "MPI_LOCALNRANKS", "SLURM_JOB_NODELIST"},
      {"Slurm",
       {"SLURM_STEP_ID"},
       "SLURM_PROCID",
       "SLURM_NTASKS",
       {"SLURM_JOB_ID", "SLURM_STEP_ID"},
       "",
       "SLURM_STEP_NODELIST"},
  };
  return all;
}

const char* value(const Environment& get, const char* name) {
  const char* text = *name ? get(name) : nullptr;
  return text && *text ? text : nullptr;
}

bool is_there(const Environment& get, const Launcher& launcher) {
  for (const char* sign : launcher.signs) {
    const char* text = value(get, sign);
    // Batch scripts and interactive shells are also steps of Slurm, with numbers from 2^32 - 6. They are not launches.
    if (text && (std::strcmp(sign, "SLURM_STEP_ID") != 0 || std::strlen(text) < 10)) return true;
  }
  return false;
}

int number(const Environment& get, const Launcher& launcher, const char* name) {
  if (const std::optional n = parse_number<int>(value(get, name))) return *n;
  fail(ErrorKind::invalid_argument, "initialize",
       "{}'s {}=\"{}\", expected a number. Start the program with its launcher, or unset the variable.", launcher.name,
       name, get(name));
}

void check_complete(const Environment& get, const Launcher& launcher, const std::vector<const char*>& names) {
  std::vector<std::string> missing, found;
  for (const char* name : names)
    if (const char* text = value(get, name))
      found.push_back(fmt::format("{}={}", name, text));
    else
      missing.push_back(name);
  if (missing.empty()) return;
  for (const char* sign : launcher.signs)
    if (found.empty() && value(get, sign)) found.push_back(fmt::format("{}={}", sign, get(sign)));
  fail(ErrorKind::invalid_argument, "initialize",
       "{} sets {}; here is {}, and {} {} missing. Start the program with its launcher, set what is missing, or unset "
       "the rest.",
       launcher.name, fmt::join(names, ", "), fmt::join(found, ", "), fmt::join(missing, ", "),
       missing.size() > 1 ? "are" : "is");
}

// Returns the first machine of Slurm's list: node03 of "node[03-05,9],login1".
std::string first_node(std::string_view list) {
  const size_t end = list.find_first_of(",[");
  std::string node(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return node;
  const std::string_view numbers = list.substr(end + 1);
  node += numbers.substr(0, numbers.find_first_of(",-]"));
  const std::string_view rest = list.substr(list.find(']') + 1);
  return node + std::string(rest.substr(0, rest.find(',')));
}

// Returns the process that started this machine's processes: the nearest ancestor without the launcher's variable.
pid_t launcher_pid(const char* variable) {
  pid_t pid = ::getpid();
  for (std::string environment = fmt::format("{}=", variable);;) {
    std::ifstream status(fmt::format("/proc/{}/stat", pid));
    const std::string text(std::istreambuf_iterator<char>(status), {});
    pid_t parent = 0;
    char state = 0;
    if (std::sscanf(text.c_str() + text.rfind(')') + 1, " %c %d", &state, &parent) != 2 || parent <= 1) return pid;
    std::ifstream file(fmt::format("/proc/{}/environ", parent));
    const std::string variables(std::istreambuf_iterator<char>(file), {});
    pid = parent;
    if (!variables.starts_with(environment) && variables.find('\0' + environment) == std::string::npos) return pid;
  }
}

// Returns a port below the system's range of ephemeral ports. Concurrent launchers on one machine have different
// process ids, so jobs without a name get different ports.
int port_of_job(const std::string& job, const Launcher& launcher) {
  return 20000 + static_cast<int>((job.empty() ? launcher_pid(launcher.index) : std::hash<std::string>{}(job)) % 12000);
}

std::string job_of(const Environment& get, const Launcher& launcher) {
  std::string job;
  for (const char* name : launcher.jobs)
    if (const char* text = value(get, name); text && std::strcmp(text, "none") != 0)  // torchrun's default
      job += fmt::format("{}={},", name, text);
  return job;
}

// Sets the address if no variable names it: Slurm's first machine, or this one.
void derive_address(const Environment& get, const Launcher& launcher, Launch& launch) {
  const char* nodes = value(get, launcher.nodes);
  if (!nodes && std::strcmp(launcher.name, "Slurm") == 0) nodes = value(get, "SLURM_JOB_NODELIST");
  const char* on_machine = value(get, launcher.on_machine);
  const bool is_one_machine = on_machine && number(get, launcher, launcher.on_machine) == launch.count;
  if (!is_one_machine && !nodes && on_machine)
    fail(ErrorKind::invalid_argument, "initialize",
         "{} reports that {} of {} processes are on this machine ({}), and MASTER_ADDR and MASTER_PORT are not set. "
         "Set them to the machine of process 0 and a port that is free there.",
         launcher.name, on_machine, launch.count, launcher.on_machine);
  launch.host = nodes && !is_one_machine ? first_node(nodes) : "127.0.0.1";
  if (launch.host.empty())
    fail(
        ErrorKind::invalid_argument, "initialize",
        "{}'s list of machines \"{}\" begins with no name. Set MASTER_ADDR and MASTER_PORT to the machine of process 0 "
        "and a port that is free there.",
        launcher.name, nodes);
  launch.port = port_of_job(launch.job, launcher);
}

Launch said_by(const Environment& get, const Launcher& launcher) {
  std::vector<const char*> names{launcher.index, launcher.count};
  check_complete(get, launcher, names);
  Launch launch{.index = number(get, launcher, launcher.index),
                .count = number(get, launcher, launcher.count),
                .launcher = launcher.name,
                .job = job_of(get, launcher)};
  if (launch.count < 1 || launch.count > max_processes || launch.index < 0 || launch.index >= launch.count)
    fail(ErrorKind::invalid_argument, "initialize",
         "{}'s {}={} and {}={}, expected a count from 1 to {} and an index below it. Start the program with its "
         "launcher, or unset both.",
         launcher.name, launcher.index, launch.index, launcher.count, launch.count, max_processes);
  if (launch.count == 1) return launch;
  if (!*launcher.nodes) check_complete(get, launcher, {launcher.index, launcher.count, "MASTER_ADDR", "MASTER_PORT"});
  read_address(get, launch);
  if (launch.host.empty()) derive_address(get, launcher, launch);
  return launch;
}

// Throws if the variables of one launcher specify a single process, and the variables of another launcher several.
// Slurm is exempt, because all processes of a Slurm job have the job's variables.
void check_alone(const Environment& get, const Launcher& first) {
  for (const Launcher& other : launchers()) {
    const char* count = value(get, other.count);
    if (&other == &first || !count || std::strcmp(count, "1") == 0 || std::strcmp(other.name, "Slurm") == 0) continue;
    fail(ErrorKind::invalid_argument, "initialize",
         "{}'s {}=1, but {}'s {}={}. Unset the variables of the one that has not started the program.", first.name,
         first.count, other.name, other.count, count);
  }
}

}  // namespace

Launch launch_of(const Environment& get) {
  for (const Launcher& launcher : launchers()) {
    if (!is_there(get, launcher)) continue;
    const Launch launch = said_by(get, launcher);
    if (launch.count == 1) check_alone(get, launcher);
    return launch;
  }
  return {};
}

void read_address(const Environment& get, Launch& launch) {
  const char* host = value(get, "MASTER_ADDR");
  const char* port = value(get, "MASTER_PORT");
  if (!host && !port) return;
  if (!host || !port)
    fail(ErrorKind::invalid_argument, "initialize",
         "{} is set, and {} is missing. Set both, to where process 0 can be reached, or unset both.",
         host ? "MASTER_ADDR" : "MASTER_PORT", host ? "MASTER_PORT" : "MASTER_ADDR");
  parse_address("MASTER_PORT", fmt::format("{}:{}", host, port), launch);
  const char* agent = value(get, "TORCHELASTIC_USE_AGENT_STORE");
  const char* attempt = value(get, "TORCHELASTIC_RESTART_COUNT");
  launch.is_agents_store = agent && std::strcmp(agent, "True") == 0;
  if (attempt && !parse_number<int>(attempt))
    fail(
        ErrorKind::invalid_argument, "initialize",
        "TORCHELASTIC_RESTART_COUNT=\"{}\", expected a number. Start the program with torchrun, or unset the variable.",
        attempt);
  launch.attempt = attempt ? attempt : "0";
}

void parse_address(const char* what, const std::string& text, Launch& launch) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  launch.host = text.substr(0, colon);
  const std::string port = text.substr(std::min(colon + 1, text.size()));
  launch.port = parse_number<int>(port).value_or(0);
  if (launch.port < 1 || launch.port > 65535 || launch.host.empty())
    fail(ErrorKind::invalid_argument, "initialize",
         "{}=\"{}\", expected a number from 1 to 65535{}. Set it to a port that is free on the machine of process 0.",
         what, std::strcmp(what, "MASTER_PORT") == 0 ? port : text,
         std::strcmp(what, "MASTER_PORT") == 0 ? "" : " behind a host and a colon");
}

}  // namespace tessera::detail
