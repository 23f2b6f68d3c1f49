// Prints a program as C++, and shrinks a failing program.
#pragma once

#include <functional>
#include <string>

#include "tests/programs/program.h"

namespace tessera::programs {

// Returns C++ source that prints the program's loss and gradients on the mesh. Replace reproduce.cpp with it.
std::string as_cpp(const Program& program);

// Leaves out nodes, mesh axes, options and shardings while `fails` holds, for at most `seconds`.
Program minimized(Program program, const std::function<bool(const Program&)>& fails, double seconds = 20);

}  // namespace tessera::programs
