// Runs one of the examples as a user would, and returns its output and exit code.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace tessera::examples {

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  std::string output;  // stdout and stderr together

  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

// Runs `command` in a shell, without a terminal.
inline Outcome run_program(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1 </dev/null").c_str(), "r");
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) outcome.output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

}  // namespace tessera::examples
