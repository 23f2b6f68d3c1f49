# Writes the bill of materials of a release, as SPDX 2.3 in JSON, from the pins of dependencies.cmake.
#
#   cmake -DOUT=tessera.spdx.json [-DLIBTORCH=2.11.0] [-DBOOST=1.85.0] [-DPLATFORM=Linux_x86_64]
#         [-DINSTALLED="torch;boost"] -P packaging/sbom.cmake
#
# Versions without a pin, and dependencies in INSTALLED, are listed without a hash. SOURCE_DATE_EPOCH sets the date. Equal
# pins give an equal file.
cmake_minimum_required(VERSION 3.25)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH source)
include("${source}/dependencies.cmake")
file(STRINGS "${source}/CMakeLists.txt" version REGEX "^project\\(tessera VERSION ")
string(REGEX REPLACE ".*VERSION ([0-9.]+).*" "\\1" version "${version}")
if(NOT OUT)
  message(FATAL_ERROR "[sbom] OUT: not given, expected the file to write: -DOUT=tessera.spdx.json.")
endif()
if(NOT LIBTORCH)
  list(GET tessera_libtorch_versions 0 LIBTORCH)
endif()
if(NOT BOOST)
  set(BOOST ${tessera_boost_version})
endif()
if(NOT PLATFORM)
  set(PLATFORM Linux_x86_64)
endif()

foreach(argument IN ITEMS LIBTORCH BOOST PLATFORM)
  if(NOT ${argument} MATCHES "^[A-Za-z0-9_.+-]+$")
    message(FATAL_ERROR "[sbom] ${argument}=${${argument}}, expected letters, digits and . _ + - only.")
  endif()
endforeach()

set(packages "")
set(relationships "")

# Adds a package, unless it is there, and its relationship to Tessera, or to ARGN. `fields` are additional members of its
# JSON.
function(add_package name version license supplier relationship fields)
  string(REGEX REPLACE "[^A-Za-z0-9.]" "-" id "SPDXRef-${name}")
  if(packages MATCHES "\"SPDXID\": \"${id}\"")
    return()
  endif()
  string(CONCAT package "{\"SPDXID\": \"${id}\", \"name\": \"${name}\", \"versionInfo\": \"${version}\", "
                        "\"supplier\": \"${supplier}\", "
                        "\"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"copyrightText\": "
                        "\"NOASSERTION\", \"licenseConcluded\": \"NOASSERTION\", \"licenseDeclared\": \"${license}\"${fields}}")
  list(APPEND packages "${package}")
  set(packages "${packages}" PARENT_SCOPE)
  if(relationship STREQUAL "DESCRIBES")
    set(ends "\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relatedSpdxElement\": \"${id}\"")
  elseif(relationship STREQUAL "DEPENDS_ON")
    set(ends "\"spdxElementId\": \"SPDXRef-tessera\", \"relatedSpdxElement\": \"${id}\"")
  else()
    list(APPEND ARGN tessera)
    list(GET ARGN 0 whole)
    set(ends "\"spdxElementId\": \"${id}\", \"relatedSpdxElement\": \"SPDXRef-${whole}\"")
  endif()
  list(APPEND relationships "{\"relationshipType\": \"${relationship}\", ${ends}}")
  set(relationships "${relationships}" PARENT_SCOPE)
endfunction()

# Adds the wheels of a list of pairs: file name, sha256.
macro(add_wheels relationship)
  set(pairs ${ARGN})
  while(pairs)
    list(POP_FRONT pairs wheel hash)
    string(REGEX REPLACE "^([^-]+)-([^-]+)-.*" "\\1;\\2" parts "${wheel}")
    list(POP_FRONT parts name wheel_version)
    string(REPLACE "_" "-" name "${name}")
    if(name STREQUAL "torch")
      set(license BSD-3-Clause)
      set(supplier ${pytorch})
    elseif(name STREQUAL "boost-headers")
      set(license BSL-1.0)
      set(supplier ${boost})
    else()
      set(license LicenseRef-NVIDIA)
      set(supplier "Organization: NVIDIA")
    endif()
    add_package(${name} ${wheel_version} ${license} ${supplier} ${relationship}
      ", \"packageFileName\": \"${wheel}\", \"checksums\": [{\"algorithm\": \"SHA256\", \"checksumValue\": \"${hash}\"}]\
, \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": \
\"pkg:pypi/${name}@${wheel_version}\"}]")
  endwhile()
endmacro()

set(tessera "Organization: The Tessera Authors")
set(pytorch "Organization: PyTorch Foundation")
set(boost "Organization: The Boost authors")
add_package(tessera ${version} Apache-2.0 ${tessera} DESCRIBES "")
if(NOT "torch" IN_LIST INSTALLED)
  add_wheels(DEPENDS_ON ${tessera_libtorch_${LIBTORCH}_wheels_${PLATFORM}})
endif()
add_package(torch ${LIBTORCH} BSD-3-Clause ${pytorch} DEPENDS_ON "")  # if it has no pin
if(BOOST STREQUAL tessera_boost_version AND NOT "boost" IN_LIST INSTALLED)
  add_wheels(DEPENDS_ON ${tessera_boost_wheels})
endif()
add_package(boost-headers ${BOOST} BSL-1.0 ${boost} DEPENDS_ON "")
# Libraries of unknown versions: compiled into Tessera, and in or with LibTorch.
add_package(fmt NOASSERTION MIT "Organization: The {fmt} authors" CONTAINED_BY "")
add_package(unicode-data 16.0.0 Unicode-3.0 "Organization: Unicode, Inc." CONTAINED_BY "")
set(gcc_license "GPL-3.0-or-later WITH GCC-exception-3.1")
add_package(oneDNN NOASSERTION Apache-2.0 ${pytorch} CONTAINED_BY "" torch)
add_package(gloo NOASSERTION BSD-3-Clause ${pytorch} CONTAINED_BY "" torch)
add_package(libgomp NOASSERTION "${gcc_license}" ${pytorch} CONTAINED_BY "" torch)
if(PLATFORM STREQUAL "Linux_x86_64")
  add_package(oneMKL NOASSERTION LicenseRef-Intel ${pytorch} CONTAINED_BY "" torch)
elseif(PLATFORM STREQUAL "Linux_aarch64")
  add_package(ArmComputeLibrary NOASSERTION MIT ${pytorch} CONTAINED_BY "" torch)
  add_package(libgfortran NOASSERTION "${gcc_license}" ${pytorch} CONTAINED_BY "" torch)
  add_package(nvpl NOASSERTION LicenseRef-NVIDIA ${pytorch} CONTAINED_BY "" torch)
endif()
if(DEFINED tessera_cuda_${LIBTORCH}_wheels_${PLATFORM})  # only with TESSERA_CUDA=FETCH
  add_wheels(OPTIONAL_DEPENDENCY_OF ${tessera_cuda_${LIBTORCH}_wheels_${PLATFORM}})
endif()
if(DEFINED tessera_nvcc_${LIBTORCH}_wheels_${PLATFORM})
  add_wheels(BUILD_DEPENDENCY_OF ${tessera_nvcc_${LIBTORCH}_wheels_${PLATFORM}})
endif()
add_package(icu NOASSERTION Unicode-3.0 NOASSERTION OPTIONAL_DEPENDENCY_OF "")
add_package(zlib NOASSERTION Zlib NOASSERTION OPTIONAL_DEPENDENCY_OF "")
add_package(zstd NOASSERTION BSD-3-Clause NOASSERTION OPTIONAL_DEPENDENCY_OF "")

string(UUID uuid NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 TYPE SHA1 NAME "tessera-${version} ${packages}")
string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
list(JOIN packages ",\n    " packages)
list(JOIN relationships ",\n    " relationships)
file(WRITE "${OUT}" "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"tessera-${version}\",
  \"documentNamespace\": \"https://spdx.org/spdxdocs/tessera-${version}-${uuid}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"${tessera}\"]},
  \"hasExtractedLicensingInfos\": [
    {\"licenseId\": \"LicenseRef-NVIDIA\", \"name\": \"NVIDIA Software License Agreement\",
     \"extractedText\": \"https://docs.nvidia.com/cuda/eula/, and the license file of each wheel\",
     \"seeAlsos\": [\"https://docs.nvidia.com/cuda/eula/\"]},
    {\"licenseId\": \"LicenseRef-Intel\", \"name\": \"Intel Simplified Software License\",
     \"extractedText\": \"https://www.intel.com/content/www/us/en/developer/articles/license/onemkl-license-faq.html\"}],
  \"packages\": [
    ${packages}],
  \"relationships\": [
    ${relationships}]
}
")
