// What the launchers' variables say: which of how many processes this is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <vector>

#include "sharding/error.h"
#include "sharding/processes.h"

namespace tessera {
namespace {

// A launcher and its variables. It is there if `sign` is set, and then all that it needs must be.
struct Launcher {
  const char* name;
  std::vector<const char*> signs;  // any of them is enough
  const char* index;
  const char* count;
  std::vector<const char*> needed;  // beside the two, where there are several processes
};

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all{
      {"torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"}, "RANK", "WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT"}},
      {"OpenMPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {}},
      {"PMI", {"PMI_RANK", "PMI_SIZE"}, "PMI_RANK", "PMI_SIZE", {}},
      {"Slurm", {"SLURM_STEP_ID"}, "SLURM_PROCID", "SLURM_NTASKS", {}},
  };
  return all;
}

const char* value(const Environment& get, const char* name) {
  const char* text = get(name);
  return text && *text ? text : nullptr;
}

bool is_there(const Environment& get, const Launcher& launcher) {
  for (const char* sign : launcher.signs) {
    const char* text = value(get, sign);
    // A batch script and an interactive shell are steps of Slurm's too, with numbers from 2^32 - 6 on: no launch.
    if (text && (std::strcmp(sign, "SLURM_STEP_ID") != 0 || std::strlen(text) < 10)) return true;
  }
  return false;
}

int number(const Environment& get, const Launcher& launcher, const char* name) {
  const char* text = value(get, name);
  const char* end = text + std::strlen(text);
  int n = 0;
  if (auto [rest, error] = std::from_chars(text, end, n); error != std::errc{} || rest != end)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{}'s {}=\"{}\", expected a number. Start the program with its launcher, or unset the variable.",
                     launcher.name, name, text));
  return n;
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
  fail(ErrorKind::bad_argument, "initialize",
       fmt::format(
           "{} sets {}; here is {}, and {} {} missing. Start the program with its launcher, set what is missing, "
           "or unset the rest.",
           launcher.name, fmt::join(names, ", "), fmt::join(found, ", "), fmt::join(missing, ", "),
           missing.size() > 1 ? "are" : "is"));
}

ProcessesOptions said_by(const Environment& get, const Launcher& launcher) {
  std::vector<const char*> names{launcher.index, launcher.count};
  check_complete(get, launcher, names);
  const int index = number(get, launcher, launcher.index), count = number(get, launcher, launcher.count);
  if (count < 1 || index < 0 || index >= count)
    fail(ErrorKind::bad_argument, "initialize",
         fmt::format("{}'s {}={} and {}={}, expected a count from 1 and an index below it. Start the program with its "
                     "launcher, or unset both.",
                     launcher.name, launcher.index, index, launcher.count, count));
  if (count > 1) {
    names.insert(names.end(), launcher.needed.begin(), launcher.needed.end());
    check_complete(get, launcher, names);
  }
  return {.index = index, .count = count, .launcher = launcher.name};
}

}  // namespace

ProcessesOptions from_environment(const Environment& get) {
  for (const Launcher& launcher : launchers())
    if (is_there(get, launcher)) return said_by(get, launcher);
  return {.index = 0, .count = 1};
}

}  // namespace tessera
