// expect: tessera: an axis has a name and a size, in this order: Axis{"embed", 64}.
#include "nn/layers.h"

const auto layer = tessera::nn::Linear::init(tessera::Key(0), tessera::Axis{64, "embed"}, {"hidden", 128});
