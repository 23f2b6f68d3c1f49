// What this process has joined: the engine that moves bytes, and the watch over the others.
#pragma once

#include <chrono>
#include <string>

#include "sharding/error.h"
#include "sharding/peers.h"
#include "sharding/transport.h"

namespace tessera::detail {

struct Joined {
  Transport* transport = nullptr;  // null where the process is alone
  Transport* beside = nullptr;     // for the thread that communicates in the background; null where there cannot be one
  Peers* peers = nullptr;
  std::chrono::milliseconds timeout{};
  int index = 0, count = 1;
};

// Joins first if the program has not.
const Joined& joined();

// Why this process cannot act with the others any more, a sentence or two: it is a child of fork, or at its end. Null
// while it can.
const char* why_apart();

// What an engine's error comes from: it notices a lost process in its own words; who it is, the peers know a little
// later.
Loss loss_behind(const Error& error, const Joined& joined);

// process 2 has ended without a word: it was killed, or it crashed. This is process 0 of 4; all of them end.
std::string words_of(const Loss& loss, const Joined& joined);

}  // namespace tessera::detail
