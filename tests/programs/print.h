// A program as C++, and a smaller one that fails alike.
#pragma once

#include <functional>
#include <string>

#include "tests/programs/program.h"

namespace tessera::programs {

// The source of a program that prints loss and gradients on the mesh: a file to take the place of reproduce.cpp.
std::string as_cpp(const Program& program);

// Leaves out nodes, mesh axes, options and shardings while `fails` holds, for at most `seconds`.
Program minimized(Program program, const std::function<bool(const Program&)>& fails, double seconds = 20);

}  // namespace tessera::programs
