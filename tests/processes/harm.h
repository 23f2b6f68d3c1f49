// Lets a process fail at a moment that a test chooses: killed, stopped, or ended in one of many ways.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace tessera::testing {

inline void wait_for_ever() {
  while (true) ::pause();
}

// Stops the process; a child continues it after this many seconds.
inline void pause_for(unsigned seconds) {
  const pid_t parent = ::getpid();
  if (::fork() == 0) {
    ::sleep(seconds);
    ::kill(parent, SIGCONT);
    ::_exit(0);
  }
  ::raise(SIGSTOP);
}

// Unknown kinds do nothing.
inline void suffer(const std::string& kind) {
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "stop") ::raise(SIGSTOP);
  if (kind == "pause") pause_for(2);
  if (kind == "pause_long") pause_for(8);
  if (kind == "abort") std::abort();
  if (kind == "vanish") ::_exit(0);
  if (kind == "exit") std::exit(0);
  if (kind == "fail") std::exit(3);
  if (kind == "throw") throw std::runtime_error("the disk is full");
  if (kind == "hang") wait_for_ever();
}

}  // namespace tessera::testing
