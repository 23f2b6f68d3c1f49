// expect: deleted
#include <iomanip>
#include <iostream>

#include "nn/layers.h"
#include "nn/placement.h"

using namespace tessera;

struct Model {
  nn::Linear layer;
};

void print(const Model& model) { std::cout << std::setw(8) << model; }
