// Store and the Gloo groups: what the processes of a program share by means of LibTorch's c10d.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// Keys and values that all processes share: c10d's TCPStore, kept by process 0 or by torchrun's agent. A call that is
// not answered within `longest`, or whose store is gone, throws a std::exception in LibTorch's words. A Store is one
// connection; threads that use it wait for each other. Values are cut to max_message_bytes.
class Store {
 public:
  // The keeper opens the port, for a loopback host at that address alone, else at all addresses of the machine; others
  // connect to it. All keys begin with `prefix`.
  Store(const std::string& host, int port, bool is_keeper, std::chrono::milliseconds longest,
        const std::string& prefix);

  void set(const std::string& key, const std::string& value) const;
  std::vector<std::string> get(const std::vector<std::string>& keys) const;  // waits until all keys are set
  bool has(const std::string& key) const;
  int64_t add(const std::string& key, int64_t n) const;  // returns the sum
  // Sets the key if it is absent or empty; returns the value that it then has.
  std::string first(const std::string& key, const std::string& value) const;

 private:
  friend class GlooGroup;
  struct Client;
  template <class Ask>
  auto answer(Ask ask) const;
  std::shared_ptr<Client> client_;
};

struct World;
// A group of these processes; its name tells it from other groups of theirs. All members make it at the same place.
// Tensors on an accelerator go through the host's memory. A group of one copies, and needs no Gloo.
std::shared_ptr<ProcessGroup> new_gloo_group(const World& world, const std::string& name,
                                             const std::vector<int>& processes,
                                             std::shared_ptr<ProcessGroup> beside = nullptr);

// The bytes that this process's groups have sent to processes on other machines so far.
int64_t sent_between_machines();

// An all_gather that is matched with those of the same channel only, not by the group's order of calls: for threads
// that each have a channel, and whose calls come in another order in each process.
[[nodiscard]] ProcessGroup::WorkPtr gather_by_channel(ProcessGroup& gloo_group, int channel, const at::Tensor& mine,
                                                      const at::Tensor& all, const WaitContext& waiting);

}  // namespace tessera::detail
