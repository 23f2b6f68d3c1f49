// The processes of this program, joined: how many there are, and what they share.
#pragma once

#include <chrono>
#include <memory>
#include <string>

namespace tessera::detail {

class ControlPlane;
class ProcessGroup;
class Store;

struct World {
  int index = 0, count = 1;
  std::chrono::milliseconds timeout{};
  // Null where this process is alone:
  std::shared_ptr<const Store> store;
  std::shared_ptr<ControlPlane> control;
  std::shared_ptr<ProcessGroup> agreement;  // of all, which no verb of theirs uses
  std::string address;                      // of this machine, by which the store is reached
};

// Joins first if the program has not.
const World& world();

}  // namespace tessera::detail
