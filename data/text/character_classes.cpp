// The general category of each code point in Unicode 16.
#include "data/text/character_classes.h"

#include <algorithm>
#include <string_view>

namespace tessera::data::detail {
namespace {

// Runs of code points of one category: "a" + the category, and the length of the run unless that is 1. Printed by
// tests/reference/gen_character_classes.py.
constexpr std::string_view runs =
    "a32~v3xv3wsvzvrv2n10v2z3v2j26wvsyqyf26wzsza33~vx4{vy{huzb{y{zp2yfv2yphtp3vj23zj7f24zf8jfjfjfjfjfjfjfjfjfjfjfjfjfjf"
    "jfjfjfjfjfjfjfjfjfjfjfjfjfjf2jfjfjfjfjfjfjfjf2jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfj2fjfjf3j2fjfj2fj3f2j4"
    "fj2fj3f3j2fj2fjfjfj2fjf2jfj2fj3fjfj2f2hjf3h4jifjifjifjfjfjfjfjfjfjfjf2jfjfjfjfjfjfjfjfjf2jifjfj3fjfjfjfjfjfjfjfjfj"
    "fjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjf7j2fj2f2jfj4fjfjfjfjf69hf27g18y4g12y14g5y7gygy17m112jfjfgyjfc2gf3vjc4y2jv"
    "j3cjcj2fj17cj9f35jf2j3f3jfjfjfjfjfjfjfjfjfjfjfjf5jfzjfj2f2j51f48jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjf{m5l2jfjfjfjfjfj"
    "fjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfj2fjfjfjfjfjfjf2jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfj"
    "fjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfcj38c2gv6f41vrc2{2xcm45rmvm2vm2vmc8h27c4h4v2c11b6z3v2xv2{2m11vbv3h32gh10m"
    "21n10v4h2mh99vhm7b{m6g2m2{m4h2n10h3{2hv14cbhmh30m27c2h89m11hc14n10h33m9g2{v3gc2mx2h22m4gm9gm3gm5c2v15ch25m3c2vch11"
    "c5h24yh6cb2c5m9h41gm24bm32kh54mkmhk3m8k4mk2hm7h10m2v2n10vgh15mk2ch8c2h2c2h22ch7chc3h4c2mhk3m4c2k2c2k2mhc8kc4h2ch3m"
    "2c2n10h2x2p6{xhvmc2m2kch6c4h2c2h22ch7ch2ch2ch2c2mck3m2c4m2c2m3c3mc7h4chc7n10m2h3mvc10m2kch9ch3ch22ch7ch2ch5c2mhk3m"
    "5cm2kck2mc2hc15h2m2c2n10vxc7hm6cmk2ch8c2h2c2h22ch7ch2ch5c2mhkmkm4c2k2c2k2mc7m2kc4h2ch3m2c2n10{hp6c10mhch6c3h3ch4c3"
    "h2chch2c3h2c3h3c3h12c4k2mk2c3k3ck3mc2hc6kc14n10p3{6x{c5mk3mh8ch3ch23ch16c2mhm3k4cm3cm4c7m2ch3c2hc2h2m2c2n10c7vp7{h"
    "mk2vh8ch3ch23ch10ch5c2mhkmk5cmk2ck2m2c7k2c6h2ch2m2c2n10ch2kc12m2k2h9ch3ch41m2hk3m4ck3ck3mh{c4h3kp7h3m2c2n10p9{h6cm"
    "k2ch18c3h24ch9chc2h7c3mc4k3m3cmck8c6n10c2k2vc12h48mh2m7c4xh6gm8vn10v2c37h2chch5ch24chch10mh2m9hc2h5cgcm7cn10c2h4c3"
    "2h{3v15{v{3m2{6n10p10{m{m{mwswsk2h8ch36c4m14km5vm2h5m11cm36c{8m{6c{2v5{4v2c37h43k2m4km6km2k2m2hn10v6h6k2m2h4m3hk3h"
    "2k7h3m4h13mk2m2k6mhkn10k3m{2j38cjc5jc2f43vgf3h329ch4c2h7chch4c2h41ch4c2h33ch4c2h7chch4c2h15ch57ch4c2h67c2m3v9p20c3"
    "h16{10c6j86c2f6c2rh620{vh17~h26wsc3h75v3o3h8c7h18m3kc9h19m2kv2c9h18m2c12h13ch3cm2c12h52m2km7k8mk2m11v3gv3xhmc2n10c"
    "6p10c6v6rv4m3bmn10c6h35gh53c7h5m2h34mhc5h70c10h31cm3k4m2k3c4k2mk6m3c4{c3v2n10h30c2h5c11h44c4h26c6n10pc3{34h23m2k2m"
    "c2v2h53kmkm7cmkmk2m8k6m10c2mn10c6n10c6v7gv6c2m14lm16c49m4kh47mkm5kmk5mk2h8cv2n10v7{10m9{9v3m2kh30km4k2m2km3h2n10h4"
    "4mkm2k3mkm3k2c8v4h36k8m8k2m2c3v5n10c3h3n10h30g6v2f9jfc5j43c2j3v8c8m3vm13km7h4mh6mh2km2hc5f44g63f13gf34g37m64jfjfjf"
    "jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjf"
    "jfjfjfjfjfjfjfjfjfjfjfjfjfjfjf9jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfj"
    "fjfjfjfjfjfjfjf9j8f6c2j6c2f8j8f8j8f6c2j6c2f8cjcjcjcjf8j8f14c2f8i8f8i8f8i8f5cf2j4iyfy3f3cf2j4iy3f4c2f2j4cy3f8j5y3c2"
    "f3cf2j4iy2c~11b5r6v2utwu2twuv8|}b5~v9utv4q2v3zwsv11zvqv10~b5cb10pgc2p6z3wsgp10z3wscg13c3x33c15m13l4ml3m12c15{2j{4j"
    "{2fj3f2j3f{j{2zj5{6j{j{j{j4{fj4fh4f{2f2j2z5jf4{z{2f{p16o35jfo4p{2c4z5{5z2{4z{2z{2z{7z{31z2{2z{z{31z268{8wsws{20z2{"
    "7ws{81z{30z25{40z6{72c22{11c21p60{78p22{183z{9z{54z8{111z{248wswswswswswswsp30{44z5wsz31wswswswswsz16{256z131wswsw"
    "swswswswswswswswsz63wswsz32wsz258{48z21{2z6{39c2{32c{105j48f48jfj3f2jfjfjfj4fjf2jf6g2j3fjfjfjfjfjfjfjfjfjfjfjfjfjf"
    "jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjf2{6jfjfm3jfc5v4pv2f38cfc5fc2h56c7gvc14mh23"
    "c9h7ch7ch7ch7ch7ch7ch7ch7cm32v2ututv3utvutv9rv2rvutv2utwswswswsv5gv10r2v4rvwv13{2v3wswswswsrc34{26c{89c12{214c26{1"
    "6~v3{ghowswswswsws{2wswswswsrws2{o9m4k2rg5{2o3ghv{2ch86c2m2y2g2hrh90vg3hc5h43ch94c{2p4{10h32{38c9{h16{31cp10{30p8{"
    "p15{32p10{39p15{320h6592{64h21013gh1143c3{55c9h40g6v2h268gv3h16n10h2c20jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfj"
    "fjfhml3vm10vgjfjfjfjfjfjfjfjfjfjfjfjfjfjfg2m2h70o10m2v6c8y23g9y2jfjfjfjfjfjfjf3jfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfjfj"
    "fjfjfjfjfjfjfjfjfjfjfjfjfjfgf8jfjfj2fjfjfjfjfgy2jfjfhjfjf3jfjfjfjfjfjfjfjfjfjfj5fj5fjfjfjfjfjfjfjfj4fjfj2fc2jfcfcf"
    "jfjfjfjc21g3jfhg2fh7mh3mh4mh23k2m2k{4mc3p6{2x{c6h52v4c8k2h50k16m2c8v2n10c6m18h6v3hvh2mn10h28m8v2h23m11k2c11vh29c3m"
    "3kh47mk2m4k2m2k3v13cgn10c4v2h5mgh9n10h5ch41m6k2m2k2m2c9h3mh8mkc2n10c2v4h16gh6{3hkmkh50mhm3h2m2h5m2hmhc24h2gv2h11km"
    "2k2v2hg2kmc10h6c2h6c2h6c9h7ch7cf43yg4f9gy2c4f80h35k2mk2mk2vkmc2n10c6h11172c12h23c4h49c4e2048d6400h366c2h106c38f7c1"
    "2f5c5hmh10zh13ch5chch2ch2ch108y17c16h363sw{16h64c2h54c7{c32h12x{3m16v7wsvc6m16vr2q2wswswswswswswswsv2wsv4q3v3cv4rw"
    "swswsv3zrz3cvxv2c4h5ch135c2bcv3xv3wsvzvrv2n10v2z3v2j26wvsyqyf26wzszwsvwsv2h10gh45g2h31c3h6c2h6c2h6c2h3c3x2zy{x2c{z"
    "4{2c10b3{2c2h12ch26ch19ch2ch15c2h14c34h123c5v3c4p45c3{9o53p4{17p2{3c{13c3{c47{45mc130h29c3h49c15mp27c4h32p4c9h20oh"
    "8oc5h38m5c5h30cvh36c4h8vo5c42j40f40h78c2n10c6j36c4f36c4h40c8h52c11vj11cj15cj7cj2cf11cf15cf7cf2c3h52c12h311c9h22c10"
    "h8c24g6cg42cg9c69h6c2hch44ch2c3hc2h23cvp8h23{2p7h31c8p9c48h19ch2c5p5h22p6c3vh26c5vc64h56c4p2h2p16c2p46hm3cm2c5m4h4"
    "ch3ch29c2m3c4mp9c7v9c7h29p2vh29p3c32h8{h28m2c4p5v7c9h54c3v7h22c2p8h19c5p8h18c7v4c12p7c80h73c55j51c13f51c7p6h36m4c8"
    "n10c6n10h4ghj22c3m5rgf22c8z2c208p31ch42cm2rc2h2c16h3c55m4h29p10hc8h22m11p4v5c22h18m4v4c38h21p7c20h23c9kmkh53m15v7c"
    "4p20n10mh2m2hc9m3kh45k3m4k2m2v2bv4mc10bc2h25c7n10c6m3h36m5km8cn10v4hk2hc8h35mv2hc9m2kh48k3m9k2h4v4m4vkmn10hvhv3cp2"
    "0c11h18ch25k3m3k2mkm2v6mh2mc62h7chch4ch15ch10vc6h47mk3m8c5n10c6m2k2ch8c2h2c2h22ch7ch2ch5cm2hk2mk4c2k2c2k3c2hc6kc5h"
    "5k2c2m7c3m5c11h10chc2hch38chk3m6ckc2kck4ck2mkmhmhv2cv2c8m2c29h53k3m8k2m3kmh4v5n10v2cvmh3c30h48k3m6kmk4m2km2h2vhc8n"
    "10c166h47k3m4c2k4m2km2v23h4m2c34h48k3m8k2mkm2v3hc11n10c6v13c19h43mkmk2m6kmhvc6n10c6n20c28h27c2mkmk2m4km5c4n10p2v3{"
    "h7c185h44k3m9km2vc100j32f32n10p9c12h8c2hc2h8ch2ch24k6ck2c2m2kmhkhkmv3c9n10c70h8c2h39k3m4c2m2k4mhvhkc27hm10h40m6khm"
    "4v8mc8hm6k2m3h46m13km2v3hv5c13h73c7v10c182h33vc14n10c6h9ch37km7cm6kmhv5c10n10p19c3v2h30c2m22ckm7km2km2c73h7ch2ch38"
    "m6c3mcm2cm7hmc8n10c6h6ch2ch32k5cm2ck2mkmhc7n10c310h19m2k2v2c7m2hkh13ch34k2m5c3k2mkmv13n10mc85hc15p21{8x4{17c13vh92"
    "2c102o111cv5c11h196c2636h97v2c13h1072b16mh6m15c10h3995c5h583c6841h30m12k3m3n10c1734h569c7h31cn10c4v2h79cn10c6h30c2"
    "m5vc10h48m7v5{4g4v{c10n10cp7ch21c5h19c432g3h40g2v3n10c198j32f32p23v4c101h75c4mhk55c7m4g13c64g2vgmc11k2c14h6136c8h1"
    "238c41h10c8935g4cg7cg2ch291c15hc29h3c2hc14h4c8h396c2308h107c5h13c3h9c7h10c2{m2vb4c3932{240n10c6{436c76m46c2m23c9{1"
    "16c60{246c10{39c2{60k2m3{3k6b8m8{2m7{30m4{61c21{66m3{c122p20c12p20c12{87c9p25c135j26f26j26f7cf18j26f26jcj2c2jc2j2c"
    "2j4cj8f4cfcf7cf11j26f26j2cj4c2j8cj7cf26j2cj4cj5cjc3j7cf26j26f26j26f26j26f26j26f26j26f26j26f28c2j25zf25zf6j25zf25zf"
    "6j25zf25zf6j25zf25zf6j25zf25zf6jfc2n50{512m55{4m50{8m{14m{2v5c15m5cm15c1104f10hf20c6f6c213m7cm17c2m7cm2cm5c5g62c33"
    "mc112h45c3m7g7c2n10c4h{c320h30mc17h44m4n10c5xc464h27gm4n10c214h30m2hn10c4vc480h7ch4ch2ch15ch197c2p9m7c41j34f34m7gc"
    "4n10c4v2c785p59{p3xp4c76p45{p15c194h4ch27ch2chc2hch10ch4chchc6hc4hchchch3ch2chc2hchchchchch2chc2h4ch7ch4ch4chch10c"
    "h17c5h3ch5ch17c52z2c270{44c4{100c12{15c2{15c{15c{37c10p13{161c56{29c13{44c4{9c7{2c14{6c154{251y5{728c4{17c3{13c3{1"
    "19c4{95c6{12c4{c15{12c4{56c8{10c6{40c8{30c2{12c4{2c62{340c12{14c2{13c3{10c5{56c7{15c2{11c6{9c7{147c{92n10c1030h427"
    "20c32h4154c6h222c2h5762c14h7473c15h622c2466h542c1506h4939c5h4192c711761bc30b96c128m240c65040d65534c2d65534c2";

// Calls visit(category, length) for each run.
template <class Visit>
void for_each_run(Visit visit) {
  for (size_t i = 0; i < runs.size();) {
    const auto category = static_cast<uint8_t>(runs[i++] - 'a');
    size_t length = 0;
    for (; i < runs.size() && runs[i] >= '0' && runs[i] <= '9'; ++i)
      length = 10 * length + static_cast<size_t>(runs[i] - '0');
    visit(category, std::max<size_t>(length, 1));
  }
}

}  // namespace

const std::vector<uint8_t>& categories() {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> made;
    made.reserve(num_code_points);
    for_each_run([&](uint8_t category, size_t length) { made.insert(made.end(), length, category); });
    return made;
  }();
  return table;
}

std::vector<std::pair<char32_t, char32_t>> CategorySet::ranges() const {
  std::vector<std::pair<char32_t, char32_t>> made;
  char32_t begin = 0;
  for_each_run([&](uint8_t category, size_t length) {
    const char32_t end = begin + static_cast<char32_t>(length);
    if (bits_ >> category & 1) {
      if (made.empty() || made.back().second + 1 != begin) made.emplace_back(begin, end);
      made.back().second = end - 1;
    }
    begin = end;
  });
  return made;
}

bool is_word_character(char32_t c) {
  constexpr CategorySet words =
      CategorySet("L") | CategorySet("M") | CategorySet("Nd") | CategorySet("Nl") | CategorySet("Pc");
  const bool is_circled_letter = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                 (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  return words.contains(c) || is_circled_letter || c == 0x200C || c == 0x200D;
}

}  // namespace tessera::data::detail
