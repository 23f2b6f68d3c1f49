// Launch: this process's index, the number of processes and their address, from a launcher's environment variables.
#pragma once

#include <functional>
#include <string>

namespace tessera::detail {

// get(name) returns the value of an environment variable, or null. Programs use std::getenv, tests a table.
using Environment = std::function<const char*(const char* name)>;

inline constexpr int max_processes = 1 << 20;  // a larger count is an error

struct Launch {
  int index = 0, count = 1;
  std::string launcher = {};  // for messages: "torchrun"; empty without a launcher
  std::string host = {};      // the machine of the store, kept by process 0; empty if no variable names it
  int port = 0;
  // True if torchrun's agent keeps the store instead of process 0; `attempt` counts the agent's restarts of the run.
  bool is_agents_store = false;
  std::string attempt = "0";
  std::string job = {};  // the same in all processes of a run, different in other runs; empty if no variable names it
};

// Returns the launch that the first launcher with a variable in the environment describes.
// Errors (invalid_argument): a set of variables that is incomplete or contradictory (the message names the missing
// ones); several machines without an address to meet at.
Launch launch_of(const Environment& get);

// Reads MASTER_ADDR, MASTER_PORT, and whether torchrun keeps the store there, into `launch`. Throws invalid_argument if
// only one of the two is set, or if the port is not a number from 1 to 65535.
void read_address(const Environment& get, Launch& launch);

// Reads "node1:29500" into `launch`. Throws invalid_argument if `text` is not such an address; the message begins with
// `what`.
void parse_address(const char* what, const std::string& text, Launch& launch);

}  // namespace tessera::detail
