// Curves for pictures: as few points as a screen can show, and the mean in the noise.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::nn {

struct CurvePoint {
  double x = 0, y = 0;
  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};
using Curve = std::vector<CurvePoint>;  // in the order of x

// A curve of more than twice `most` points is cut into `most` runs, of each of which the least and the largest point
// stay, so that no peak is lost; a shorter one stays as it is.
Curve extremes(const Curve& curve, size_t most);

// The means over a twentieth of the points, centred, at `most` of them or a few more, the last among them. At the steep
// start the window narrows, so that the mean does not lag; at the end it keeps what there is of it.
Curve centred_means(const Curve& curve, size_t most);

}  // namespace tessera::nn
