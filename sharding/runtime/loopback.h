// Loopback: the addresses of a machine that only its own processes reach.
#pragma once

#include <string>

namespace tessera::detail {

// Whether `host` is an address of 127.0.0.0/8, ::1 or "localhost". The names of machines are not: on their own machine
// many of them mean 127.0.1.1, though others have to reach it by them.
bool is_loopback(const std::string& host);

// Returns a socket that listens at this port of a loopback host, and at no other address. Throws std::system_error if
// that is not possible: the port is taken.
int listen_on_loopback(const std::string& host, int port);

}  // namespace tessera::detail
