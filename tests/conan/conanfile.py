"""The Conan 2 recipe of Tessera. Its CMake build also provides LibTorch, Boost and fmt."""
import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class Tessera(ConanFile):
    name = "tessera"
    description = "Sharded training of neural networks in C++20"
    license = "Apache-2.0"
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {name: [True, False] for name in ("shared", "cuda", "compression", "tokenizer")}
    default_options = {"shared": False, "cuda": False, "compression": True, "tokenizer": True}

    @property
    def repository(self):
        return Path(self.recipe_folder).parents[1]

    @property
    def project(self):
        return load(self, self.repository / "CMakeLists.txt")

    def set_version(self):
        self.version = re.search(r"^project\(tessera VERSION ([0-9.]+)", self.project, flags=re.M)[1]

    def export_sources(self):
        folders = re.findall(r"^add_subdirectory\((.+)\)$", self.project, flags=re.M)  # in every build
        files_at_root = ("CMakeLists.txt", "dependencies.cmake", "LICENSE", "tessera.h", "packaging/*")
        for files in (*files_at_root, *(f"{folder}/*" for folder in folders)):
            copy(self, files, src=self.repository, dst=self.export_sources_folder)

    def validate(self):
        check_min_cppstd(self, 20)
        libcxx = self.settings.get_safe("compiler.libcxx")
        if libcxx != "libstdc++11":
            raise ConanInvalidConfiguration(f"compiler.libcxx={libcxx}, expected libstdc++11, LibTorch's own")

    def layout(self):
        self.folders.root = "../.."
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"TESSERA_BUILD_{part}"] = "OFF"
        toolchain.cache_variables["TESSERA_FETCH_DEPS"] = "OFF"
        dependencies = {"CUDA": "cuda", "ICU": "tokenizer", "ZLIB": "compression", "ZSTD": "compression"}
        for name, option in dependencies.items():
            toolchain.cache_variables[f"TESSERA_{name}"] = "ON" if self.options.get_safe(option) else "OFF"
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        for file in ("LICENSE", "packaging/third_party_licenses.txt"):
            copy(self, file, src=self.source_folder, dst=Path(self.package_folder) / "licenses")
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # the folder of Tessera's own package for find_package
        self.cpp_info.builddirs = ["lib/cmake/tessera"]
