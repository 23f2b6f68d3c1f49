// Addresses of hosts: resolution, ownership, and connections.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

namespace tessera::detail {

// Returns the addresses of a host; null if its name is unknown.
std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses_of(const std::string& host, int port, int flags = 0);

// Returns whether this machine has one of the host's addresses. With AI_NUMERICHOST `host` must be an address.
bool is_own(const std::string& host, int flags = 0);

// Returns whether `host` is an address of 127.0.0.0/8, ::1 or "localhost", which only processes of this machine can
// reach. Machine names do not count: on their own machine many resolve to 127.0.1.1, but other machines use them too.
bool is_loopback(const std::string& host);

// Returns a socket that listens at this port of a loopback host, and at no other address. Throws std::system_error if
// that fails, for example if the port is in use.
int listen_on_loopback(const std::string& host, int port);

// The two addresses of a connection; empty if there is none.
struct Ends {
  std::string own, other;
};

// Connects to this port and disconnects. Returns the ends of that connection. LibTorch's client logs to stderr while
// nobody listens, so call this first.
Ends ends_towards(const std::string& host, int port);

}  // namespace tessera::detail
