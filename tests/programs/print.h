// A program as C++, and a smaller one that fails alike.
#pragma once

#include <functional>
#include <string>

#include "tests/programs/program.h"

namespace tessera::programs {

// The source of a program that computes loss and gradients on the mesh, without a mesh and by LibTorch. It compiles with
// reproduce.h in the place of tests/programs/main.cpp.
std::string as_cpp(const Program& program);

// Leaves out nodes, mesh axes, options and shardings while `fails` holds, for at most `seconds`.
Program minimized(Program program, const std::function<bool(const Program&)>& fails, double seconds = 20);

}  // namespace tessera::programs
