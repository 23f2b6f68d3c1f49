// The inverse error function as inline arithmetic, for vector instructions and for GPUs.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

// Marks functions that target_clones clones with their caller, and that nvcc compiles for GPUs as well.
#ifdef __CUDACC__
#define TESSERA_ALWAYS_INLINE __host__ __device__ __forceinline__
#define TESSERA_CONSTANTS __device__ constexpr
#else
#define TESSERA_ALWAYS_INLINE inline __attribute__((always_inline))
#define TESSERA_CONSTANTS inline constexpr
#endif

// Source of the polynomials: Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012), as in XLA.
namespace tessera::detail {

// Returns the natural logarithm of a positive normal number, to one unit in the last place. Vector and scalar math
// libraries differ in the last bit, so neither is used. Source: FreeBSD msun e_logf.c and e_log.c (Sun Microsystems).
TESSERA_ALWAYS_INLINE float log_of(float x) {
  const int32_t shifted = std::bit_cast<int32_t>(x) - 0x3F3504F3;
  const float k = static_cast<float>(shifted >> 23);
  const float f = std::bit_cast<float>((shifted & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  const float s = f / (2.0f + f), z = s * s, w = z * z;
  const float odd = w * (0xccce13.0p-25f + w * 0xf89e26.0p-26f);
  const float even = z * (0xaaaaaa.0p-24f + w * 0x91e9ee.0p-25f);
  const float half = 0.5f * f * f;
  return k * 6.9313812256e-01f - ((half - (s * (half + (odd + even)) + k * 9.0580006145e-06f)) - f);
}

TESSERA_ALWAYS_INLINE double log_of(double x) {
  const int64_t shifted = std::bit_cast<int64_t>(x) - 0x3FE6A09E667F3BCD;
  const double k = static_cast<double>(static_cast<int32_t>(shifted >> 52));
  const double f = std::bit_cast<double>((shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD) - 1.0;
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double even =
      z * (6.666666666666735130e-01 +
           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half = 0.5 * f * f;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + (odd + even)) + k * 1.90821492927058770002e-10)) - f);
}

TESSERA_CONSTANTS float kCentralFloat[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                                           -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                                           -0.00417768164f,  0.246640727f,    1.50140941f};
TESSERA_CONSTANTS float kTailFloat[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                                        -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                                        0.00943887047f,   1.00167406f,     2.83297682f};

// Returns erfinv(x) for -1 <= x <= 1, where w = -log(1 - x^2).
TESSERA_ALWAYS_INLINE float erf_inv(float x) {
  const float square = x * x;
  const float w = -log_of(1.0f - square);
  const bool central = w < 5.0f;
  const float t = central ? w - 2.5f : std::sqrt(w) - 3.0f;
  float p = central ? kCentralFloat[0] : kTailFloat[0];
  for (int i = 1; i < 9; ++i) p = (central ? kCentralFloat[i] : kTailFloat[i]) + p * t;
  return square == 1.0f ? x * std::numeric_limits<float>::infinity() : p * x;
}

TESSERA_CONSTANTS double kCentralDouble[] = {
    -3.6444120640178196996e-21, -1.685059138182016589e-19,  1.2858480715256400167e-18,  1.115787767802518096e-17,
    -1.333171662854620906e-16,  2.0972767875968561637e-17,  6.6376381343583238325e-15,  -4.0545662729752068639e-14,
    -8.1519341976054721522e-14, 2.6335093153082322977e-12,  -1.2975133253453532498e-11, -5.4154120542946279317e-11,
    1.051212273321532285e-09,   -4.1126339803469836976e-09, -2.9070369957882005086e-08, 4.2347877827932403518e-07,
    -1.3654692000834678645e-06, -1.3882523362786468719e-05, 0.0001867342080340571352,   -0.00074070253416626697512,
    -0.0060336708714301490533,  0.24015818242558961693,     1.6536545626831027356};
TESSERA_CONSTANTS double kMiddleDouble[] = {
    2.2137376921775787049e-09,  9.0756561938885390979e-08, -2.7517406297064545428e-07, 1.8239629214389227755e-08,
    1.5027403968909827627e-06,  -4.013867526981545969e-06, 2.9234449089955446044e-06,  1.2475304481671778723e-05,
    -4.7318229009055733981e-05, 6.8284851459573175448e-05, 2.4031110387097893999e-05,  -0.0003550375203628474796,
    0.00095328937973738049703,  -0.0016882755560235047313, 0.0024914420961078508066,   -0.0037512085075692412107,
    0.005370914553590063617,    1.0052589676941592334,     3.0838856104922207635};
TESSERA_CONSTANTS double kTailDouble[] = {
    -2.7109920616438573243e-11, -2.5556418169965252055e-10, 1.5076572693500548083e-09,  -3.7894654401267369937e-09,
    7.6157012080783393804e-09,  -1.4960026627149240478e-08, 2.9147953450901080826e-08,  -6.7711997758452339498e-08,
    2.2900482228026654717e-07,  -9.9298272942317002539e-07, 4.5260625972231537039e-06,  -1.9681778105531670567e-05,
    7.5995277030017761139e-05,  -0.00021503011930044477347, -0.00013871931833623122026, 1.0103004648645343977,
    4.8499064014085844221};

template <size_t N>
TESSERA_ALWAYS_INLINE double horner(const double (&coefficients)[N], double t) {
  double p = coefficients[0];
#pragma GCC unroll 32
  for (size_t i = 1; i < N; ++i) p = coefficients[i] + p * t;
  return p;
}

TESSERA_ALWAYS_INLINE double erf_inv(double x) {
  const double square = x * x;
  const double w = -log_of(1.0 - square);
  const double root = std::sqrt(w);
  const double central = horner(kCentralDouble, w - 3.125);
  const double middle = horner(kMiddleDouble, root - 3.25);
  const double tail = horner(kTailDouble, root - 5.0);
  const double p = w < 6.25 ? central : w < 16.0 ? middle : tail;
  return square == 1.0 ? x * std::numeric_limits<double>::infinity() : p * x;
}

}  // namespace tessera::detail
