// Launch: which of how many processes this is and where they meet, as a launcher's environment variables say it.
#pragma once

#include <functional>
#include <string>

namespace tessera::detail {

// get(name): the value of an environment variable, or null; std::getenv in a program, a table in a test.
using Environment = std::function<const char*(const char* name)>;

inline constexpr int max_processes = 1 << 20;  // a larger count is a mistake

struct Launch {
  int index = 0, count = 1;
  std::string launcher = {};  // for messages: "torchrun"; empty if there is none
  std::string host = {};      // the machine where process 0 keeps the store; empty if no variable names it
  int port = 0;
  // True if torchrun's agent keeps the store instead of process 0; `attempt` counts the agent's restarts of the run.
  bool is_agents_store = false;
  std::string attempt = "0";
  std::string job = {};  // the same in all processes of a run, another in other runs; empty if no variable names it
};

// What the first launcher says that has a variable in the environment. Errors (invalid_argument): a set of variables
// that is partial or contradicts itself (the message names what is missing); several machines and no address to meet
// at.
Launch launch_of(const Environment& get);

// Reads MASTER_ADDR, MASTER_PORT and who keeps the store there into `launch`. Errors (invalid_argument): one of the two
// without the other, a port that is not a number from 1 to 65535.
void read_address(const Environment& get, Launch& launch);

// Reads "node1:29500" into `launch`. Error (invalid_argument), which begins with `what`, if `text` is no such address.
void parse_address(const char* what, const std::string& text, Launch& launch);

}  // namespace tessera::detail
