// TCP sockets that never wait: listen, connect, lines of text in and out.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

// A connection of text lines. A closed one has fd -1.
class LineSocket {
 public:
  explicit LineSocket(int fd) : fd_(fd) {}
  ~LineSocket() { close(); }
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&&) = delete;
  int fd() const { return fd_; }
  bool has_unsent() const { return !out_.empty(); }

  void say(std::string_view line);  // sent as far as possible now, the rest by send()
  void send();
  std::vector<std::string> hear();                          // the lines that have come; closes at the end of the stream
  std::string hear_one(std::chrono::milliseconds longest);  // waits for one; empty if there is none
  void close();

 private:
  int fd_;
  std::string in_, out_;
};

// Listens at a port of the system's choice.
struct Listener {
  int fd;
  int port;
};
Listener listen_anywhere();
int accept_one(int listener);  // -1 if nobody is there

// Whether anything is known by this name.
bool is_host(const std::string& name);

// 32 characters that nobody guesses: who connects must know them.
std::string new_token();

// Where a pid means the same process: this boot of this machine, and this namespace of pids.
std::string own_machine();

// The numeric addresses of this machine that others may reach, loopback first.
std::vector<std::string> own_addresses();
// -1 if nobody answers at this address, or at any of this name.
int connect_to(const std::string& address, int port, std::chrono::milliseconds longest);

}  // namespace tessera::detail
