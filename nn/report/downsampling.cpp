// Runs of points and their extremes; means as differences of running sums.
#include "nn/report/downsampling.h"

#include <algorithm>

namespace tessera::nn {

Curve extremes(const Curve& curve, size_t most) {
  if (curve.size() <= 2 * most) return curve;
  const auto lower = [](const CurvePoint& a, const CurvePoint& b) { return a.y < b.y; };
  Curve kept;
  for (size_t i = 0; i < most; ++i) {
    const auto begin = curve.begin() + static_cast<ptrdiff_t>(i * curve.size() / most);
    const auto end = curve.begin() + static_cast<ptrdiff_t>((i + 1) * curve.size() / most);
    const auto [low, high] = std::minmax_element(begin, end, lower);
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

Curve centred_means(const Curve& curve, size_t most) {
  const size_t n = curve.size(), half = n / 40, stride = 1 + n / most;
  std::vector<double> sums = {0};
  for (const CurvePoint& point : curve) sums.push_back(sums.back() + point.y);
  const auto mean_at = [&](size_t i) {
    const size_t reach = std::min(half, i), begin = i - reach, end = std::min(i + reach + 1, n);
    return CurvePoint{curve[i].x, (sums[end] - sums[begin]) / static_cast<double>(end - begin)};
  };
  Curve means;
  for (size_t i = 0; i + 1 < n; i += stride) means.push_back(mean_at(i));
  if (n) means.push_back(mean_at(n - 1));
  return means;
}

}  // namespace tessera::nn
