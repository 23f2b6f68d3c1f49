// What the launchers' variables say: which of how many processes this is, and where they meet.
#pragma once

#include <functional>
#include <string>

namespace tessera::detail {

// What `get(name)` finds of the environment, or null: std::getenv in a program, a table in a test.
using Environment = std::function<const char*(const char* name)>;

struct Launch {
  int index = 0, count = 1;
  std::string launcher = {};  // for messages: "torchrun"; empty where there is none
  std::string host = {};      // where process 0 keeps the store; empty: nobody says
  int port = 0;
  // Torchrun's agent keeps it instead, and this is its so many-th attempt at the run.
  bool is_agents_store = false;
  std::string attempt = "0";
};

// Of the first launcher that the environment has any variable of. Errors (bad_argument): a set that is partial or
// contradicts itself names what is missing; processes on several machines of which nobody says where they meet.
Launch launch_of(const Environment& get);

// The address alone: of MASTER_ADDR and MASTER_PORT, and who keeps the store there. Errors (bad_argument): one of them
// without the other, a port that is no number from 1 to 65535.
void read_address(const Environment& get, Launch& launch);

// "node1:29500". Error (bad_argument) for what is no such thing, which begins with `what`.
void parse_address(const char* what, const std::string& text, Launch& launch);

}  // namespace tessera::detail
