// Curves for charts: thinned to as few points as a screen can show, and their moving means.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::nn {

struct CurvePoint {
  double x = 0, y = 0;
  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};
using Curve = std::vector<CurvePoint>;  // in the order of x

// Cuts a curve of more than twice `most` points into `most` runs and keeps the least and the largest point of each, so
// that no peak is lost. A shorter curve is returned as it is.
Curve extremes(const Curve& curve, size_t most);

// The centred moving mean over a twentieth of the points, at about `most` of them, the last among them. At the steep
// start the window is narrower on both sides, so that the mean does not lag; at the end only its later side is cut off.
Curve centred_means(const Curve& curve, size_t most);

}  // namespace tessera::nn
