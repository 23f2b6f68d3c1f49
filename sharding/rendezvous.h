// Where processes that no launcher of MPI has started find each other: the store that torchrun's variables name.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "sharding/processes.h"

namespace tessera::detail {

// The store of torchrun's variables: a server of LibTorch's (c10d::TCPStore), of which all processes are clients.
struct MeetingPlace {
  std::string host;               // MASTER_ADDR
  int port = 0;                   // MASTER_PORT
  bool is_the_launchers = false;  // TORCHELASTIC_USE_AGENT_STORE=True; else process 0 opens it
  std::string attempt = {};       // TORCHELASTIC_RESTART_COUNT: torchrun's own store outlives a failed attempt
  std::string address() const { return host + ":" + std::to_string(port); }
};

// Of MASTER_ADDR and MASTER_PORT; nothing where neither is set. Errors (bad_argument): one of them alone, a port that
// is no number from 1 to 65535.
std::optional<MeetingPlace> meeting_place(const Environment& get);

// Every process puts down one line of text, its card, and gets those of all.
class Rendezvous {
 public:
  Rendezvous(int index, int count, MeetingPlace place);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  // Of this run, for names on one host.
  std::string name() const;

  // Waits for ever: a deadline ends the program. Errors (other): the port cannot be opened, or what listens there is no
  // such store; (bad_argument): another process has come under this index; (inconsistent): another one has been told
  // another count.
  std::vector<std::string> meet(const std::string& card);

  // Who has come, for the words of a deadline, from any thread; empty once all have.
  std::string words() const;

  // By process 0 when all have read all: the launcher's store may serve another program after this one.
  void clear();

 private:
  class Store;
  bool is_server() const { return index_ == 0 && !place_.is_the_launchers; }
  std::string key(const char* what, int process) const;
  void connect();
  void take_index();
  std::vector<std::string> gathered();

  const int index_, count_;
  const MeetingPlace place_;
  std::unique_ptr<Store> store_;
  mutable std::mutex mutex_;                      // of what follows
  bool is_taken_ = false, is_connected_ = false;  // somebody listens there; and it is the store
  std::vector<int> missing_;
};

}  // namespace tessera::detail
