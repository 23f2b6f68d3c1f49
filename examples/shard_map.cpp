// shard_map: runs a function of one device's block on eight devices; shows its arguments and its communication.
#include <iostream>

#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/shard_map.h>

using namespace tessera;

// From numpy.random.default_rng(0).normal, in float32.
Array inputs() {
  return array<float>({0.12573022f,  -0.13210486f, 0.64042264f, 0.104900114f, -0.5356694f, 0.36159506f, 1.304f,
                       0.94708097f,  -0.70373523f, -1.2654215f, -0.62327445f, 0.04132598f, -2.3250308f, -0.21879166f,
                       -1.245911f,   -0.7322674f,  -0.544259f,  -0.31630015f, 0.41163054f, 1.0425134f,  -0.12853466f,
                       1.3664634f,   -0.6651947f,  0.35151008f, 0.90347016f,  0.0940123f,  -0.7434993f, -0.9217254f,
                       -0.45772582f, 0.22019513f,  -1.0096182f, -0.20917557f});
}

Array weights() {
  const std::vector<float> values{
      -0.15922502f, 0.5408456f,   0.21465912f,  0.3553727f,    -0.6538286f,   -0.12961364f, 0.7839755f,
      1.4934311f,   -1.2590655f,  1.5139238f,   1.3458754f,    0.7813114f,    0.26445562f,  -0.31392282f,
      1.4580207f,   1.9602584f,   1.8016349f,   1.3151038f,    0.35738042f,   -1.2083186f,  -0.004454133f,
      0.65647495f,  -1.2883614f,  0.39512205f,  0.4298637f,    0.6960427f,    -1.1841179f,  -0.6617026f,
      -0.43643525f, -1.169802f,   1.7393678f,   -0.49591073f,  0.32896963f,   -0.25857255f, 1.5834728f,
      1.320361f,    0.63335264f,  -2.2035098f,  0.052028973f,  0.6836862f,    1.0039616f,   -0.61790705f,
      1.8220114f,   -1.320431f,   -0.66152805f, 0.93505f,      0.049054615f,  2.0023925f,   0.1885192f,
      -0.6331941f,  -0.3775635f,  -1.0911461f,  -1.2776802f,   0.6304115f,    0.5811658f,   1.2945588f,
      -0.75460577f, 1.6891074f,   -0.2873877f,  1.5744083f,    -0.43278584f,  -0.7354833f,  0.24978538f,
      1.0314531f,   0.16100958f,  -0.58552885f, -1.3412197f,   -1.4015203f,   0.50268286f,  0.989713f,
      -0.16429459f, -1.0743649f,  0.87304217f,  -1.280394f,    -0.71306807f,  0.6210179f,   -2.2501411f,
      0.3863696f,   -0.58164084f, 0.1092797f,   -0.07570153f,  0.20211439f,   0.69417197f,  -0.75836974f,
      1.420982f,    0.72609377f,  0.84373266f,  1.164864f,     0.78758824f,   0.84407866f,  0.07559361f,
      -1.4267739f,  -0.1350451f,  -0.7695146f,  -1.4227418f,   0.2584528f,    -0.56854945f, -1.0298045f,
      -1.043001f,   0.2684171f,   0.35867196f,  1.3224574f,    -0.013914669f, 1.0418397f,   1.4022648f,
      1.1501657f,   -2.365304f,   1.2286837f,   0.33962f,      0.42377135f,   0.3712274f,   0.38275716f,
      0.31941423f,  -0.3589133f,  -1.9016353f,  -0.108914725f, -0.80373186f,  1.0801634f,   -0.2887665f,
      0.08347536f,  -0.849606f,   -0.51062244f, -0.011533062f, -1.4853752f,   0.3006851f,   -0.106072254f,
      -1.1857198f,  -2.398233f};
  return array<float>(values, {32, 4});
}

Array bias() { return array<float>({0.5130521f, -0.29758403f, -0.53000844f, -0.23615463f}); }

Array counted() {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < 32; ++i) values.push_back(i);
  return array<int32_t>(values, {32});
}

// Splits x into eight blocks of four. The function receives one block at a time and prints it.
void each_device_sees_its_block(Mesh mesh) {
  const Array x = counted();
  std::cout << "all: " << x.type_string() << '\n';
  const auto twice = [](const Array& block) {
    std::cout << "one device: " << block.type_string() << '\n';
    return block * 2;
  };
  const Array y = shard_map(twice, mesh, P{"x"}, P{"x"})(x);
  std::cout << "twice: " << y << '\n';
}

// A sum inside the function covers only its block. Summed over the devices, it is one value: out_specs P{}.
void a_sum_is_the_blocks_own(Mesh mesh) {
  const Array x = counted();
  const auto sums = shard_map([](const Array& block) { return sum(block, {}, true); }, mesh, P{"x"}, P{"x"});
  std::cout << "sum of each block: " << sums(x) << '\n';
  const auto total = shard_map([](const Array& block) { return psum(sum(block), "x"); }, mesh, P{"x"}, P{});
  std::cout << "sum of all: " << total(x) << '\n';
}

Array layer(const Array& x, const Array& w, const Array& b) { return sigmoid(matmul(x, w) + b); }

// One layer with its contracted dim over the devices: on whole arrays, on sharded ones, and as one device's program.
void a_layer_three_ways(Mesh mesh) {
  const Array x = inputs(), w = weights(), b = bias();
  std::cout << "layer: " << layer(x, w, b) << '\n';

  const NamedSharding sharding(mesh, P{"x"});
  std::cout << "layer of sharded arrays: " << layer(device_put(x, sharding), device_put(w, sharding), b) << '\n';

  const auto on_each = [](const Array& xs, const Array& ws, const Array& bs) {
    return sigmoid(psum(matmul(xs, ws), "x") + bs);
  };
  std::cout << "layer by shard_map: " << shard_map(on_each, mesh, {P{"x"}, P{"x", none}, P{none}}, P{none})(x, w, b)
            << '\n';
}

int main() {
  const Mesh mesh = make_mesh({{"x", 8}});

  // Elementwise functions need no communication: each device computes its block of the result from its block of x.
  const auto elementwise = shard_map([](const Array& x) { return 2 * sin(x) + 1; }, mesh, P{"x"}, P{"x"});
  std::cout << "2 sin(x) + 1: " << elementwise(counted()) << '\n';

  each_device_sees_its_block(mesh);
  a_sum_is_the_blocks_own(mesh);
  a_layer_three_ways(mesh);
}
